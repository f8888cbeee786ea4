"""Results through a real Kafka: each is settled once, whatever happens to the broker, the records or the session."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.backends.kafka_engines import open_results
from mainspring.backends.kafka_results import KafkaResults
from mainspring.domain.errors import Invalid, Unavailable
from mainspring.ports import SignedRecord
from mainspring.results.batch import Report
from mainspring.store.db import Database
from mainspring.telemetry import metrics
from mainspring.wire.result_stream import record_of, sign
from mainspring.worker.transport.api_client import ApiUnavailable
from tests.conftest import Cluster, started
from tests.support.engine_servers import KafkaServer
from tests.support.processes import free_port, until, until_async
from tests.support.remote_worker import Remote, remote
from tests.support.tcp_proxy import PortProxy, proxy

pytestmark = pytest.mark.anyio

EACH = 12
WITHIN_S = 60


class Held:
    """Attempts of one session, whose results the test sends itself."""

    def __init__(self, cluster: Cluster, worker: Remote, given: list[wire.Assignment], stream: KafkaResults) -> None:
        self.cluster, self.worker, self.given, self.stream = cluster, worker, given, stream

    def record(self, given: wire.Assignment, *, key: str = "") -> SignedRecord:
        result = wire.Result(execution_id=given.execution_id, attempt=given.attempt, outcome="succeeded", duration_ms=5)
        jobs = {given.execution_id: given.job_id}
        value = record_of(self.worker.session_id, [result], [], jobs=jobs)
        digest = sha256((key or self.worker.key).encode()).digest()
        return SignedRecord(self.worker.session_id, value, sign(value, digest))

    async def append(self, given: Sequence[wire.Assignment]) -> None:
        """Append as a worker does: again until the stream has it."""
        for one in given:
            while True:
                try:
                    await self.stream.append(self.record(one))
                    break
                except Unavailable:
                    continue

    async def states(self) -> set[tuple[str, int]]:
        async with self.cluster.client() as client:
            return {(e.state, e.attempt) for e in (await client.executions(limit=100)).items}

    async def settled(self) -> None:
        """Every execution succeeded at its first attempt: none was lost, and none ran again."""

        async def done() -> bool:
            return await self.states() == {("succeeded", 1)}

        try:
            await until_async("every result to be settled", done, within_s=WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.states()}") from None
        async with self.cluster.client() as client:
            assert len((await client.executions(limit=100)).items) == len(self.given)


@asynccontextmanager
async def holding(kafka: KafkaServer, url: str, *, count: int = EACH, **config: Any) -> AsyncIterator[Held]:
    prefix = f"t{uuid4().hex[:12]}"
    async with AsyncExitStack() as stack:
        results = f"{kafka.url}/{prefix}"
        cluster = await stack.enter_async_context(started(url, results=f"{results}?partitions=3", **config))
        stream = open_results(results, prefix=None)
        assert stream is not None
        await stream.start()
        stack.push_async_callback(stream.stop)
        client = await stack.enter_async_context(cluster.client())
        await client.create_job({"name": "held", "task": {"kind": "noop"}, "retries": {"max": 3, "base": "1ms"}})
        worker = await stack.enter_async_context(remote(cluster, takes=["session_key"]))
        await client.submit([wire.BatchItem(job="held") for _ in range(count)])
        given: list[wire.Assignment] = []
        while len(given) < count:
            given += (await worker.poll(count - len(given))).executions
        yield Held(cluster, worker, given, stream)


@pytest.fixture
async def held(kafka: KafkaServer, fresh: Database) -> AsyncIterator[Held]:
    async with holding(kafka, fresh.dsn, session_lease_s=WITHIN_S * 4.0) as found:
        yield found


async def break_and_mend(kafka: KafkaServer, how: str, held: Held) -> None:
    """Break the broker until the server has noticed, then mend it."""
    engine = held.stream.engine
    if how == "freeze":
        kafka.freeze()
    else:
        kafka.kill()
    await until("the loss to be noticed", lambda: not engine.connected, within_s=WITHIN_S)
    if how == "freeze":
        kafka.thaw()
    elif how == "kill":
        await kafka.start()
    else:
        await kafka.restart_empty()


@pytest.mark.parametrize("how", ["kill", "freeze", "empty"])
async def test_each_result_is_settled_once_when_the_broker_fails(kafka: KafkaServer, held: Held, how: str) -> None:
    await held.append(held.given[:4])
    appending = asyncio.create_task(held.append(held.given[4:8]))
    try:
        await break_and_mend(kafka, how, held)
    finally:
        kafka.thaw() if how == "freeze" else None
    await asyncio.wait_for(appending, WITHIN_S)
    await held.append(held.given[8:])
    if how == "empty":
        # A worker keeps its results and sends them again: what the broker lost arrives at the api.
        for given in held.given:
            await held.worker.tell(given)
    await held.settled()


async def test_repeated_and_reordered_records_change_nothing(held: Held) -> None:
    before = metrics.STREAMED_RESULTS.labels("duplicate")._value.get()
    repeated = held.given * 3
    random.Random(7).shuffle(repeated)
    await held.append(repeated)
    await held.worker.tell(held.given[0])
    await held.settled()
    expected = before + 2 * EACH

    def counted() -> bool:
        return bool(metrics.STREAMED_RESULTS.labels("duplicate")._value.get() >= expected)

    await until("the duplicates to be counted", counted, within_s=WITHIN_S)


async def test_records_that_the_session_has_not_signed_are_discarded(held: Held) -> None:
    given = held.given[0]
    good = held.record(given)
    older = good.value.replace(b'"version":1', b'"version":2')
    digest = sha256(held.worker.key.encode()).digest()
    forged = [
        held.record(given, key="of another session"),
        SignedRecord(good.session_id, good.value, b""),
        SignedRecord(uuid4(), good.value, good.signature),
        SignedRecord(good.session_id, older, sign(older, digest)),
        SignedRecord(good.session_id, b"[]", sign(b"[]", digest)),
    ]
    names = ("unsigned", "unreadable")
    before = [metrics.STREAMED_RESULTS.labels(name)._value.get() for name in names]
    for record in forged:
        await held.stream.append(record)

    def discarded() -> bool:
        found = [metrics.STREAMED_RESULTS.labels(name)._value.get() for name in names]
        return found == [before[0] + 3, before[1] + 2]

    await until("all five to be discarded", discarded, within_s=WITHIN_S)
    assert await held.states() == {("running", 1)}
    await held.append(held.given)
    await held.settled()


async def test_a_lost_session_s_results_are_settled_before_its_attempts_are_lost(held: Held) -> None:
    settler, opened, waiting = held.cluster.server.settler, asyncio.Event(), asyncio.Event()
    settle = settler.settle

    async def settle_when_opened(report: Report) -> set[UUID]:
        if any(ended.outcome == "succeeded" for ended in report.ended):
            waiting.set()
            await opened.wait()
        return await settle(report)

    settler.settle = settle_when_opened  # type: ignore[method-assign]
    await held.append(held.given)
    await waiting.wait()
    leaving = asyncio.create_task(held.worker.goodbye(lost=True))
    await asyncio.wait({leaving}, timeout=1)
    assert await held.states() == {("running", 1)}, "the rescue waits for the results"
    opened.set()
    await leaving
    assert await held.states() == {("succeeded", 1)}


async def test_without_a_broker_lost_attempts_are_rescued(kafka: KafkaServer, fresh: Database) -> None:
    absent = KafkaServer(Path("absent"))
    async with holding(absent, fresh.dsn, count=2) as held:
        assert not held.stream.engine.connected
        with pytest.raises(Unavailable, match=r"--results kafka://127\.0\.0\.1:\d+: "):
            await held.stream.append(held.record(held.given[0]))
        await held.worker.tell(held.given[0])
        await held.worker.goodbye(lost=True)
        assert await held.states() == {("succeeded", 1), ("queued", 1)}


@pytest.mark.requirement(28)
async def test_the_api_keeps_results_while_the_database_is_cut_off(kafka: KafkaServer, fresh: Database) -> None:
    async with proxy(fresh.dsn) as door, holding(kafka, door.url, tenant_database_url=None) as held:
        door.cut()
        left = list(held.given)
        with contextlib.suppress(ApiUnavailable):  # without a database, the api accepts a token for five seconds more
            while left:
                assert (await held.worker.tell(left[0])).stale == []
                del left[0]
        assert len(left) < EACH, "none was kept while the database was cut off"
        door.heal()
        for given in left:  # a worker sends them again
            await until_async("the result to be accepted", partial(accepted, held, given), within_s=WITHIN_S)
        await held.settled()


async def test_records_that_were_read_and_not_settled_come_to_the_next_process(kafka: KafkaServer) -> None:
    """The position is committed after settling: a process that ends in between costs nothing."""
    url = f"{kafka.url}/t{uuid4().hex[:12]}?partitions=3"
    sent = [SignedRecord(uuid4(), str(n).encode(), b"") for n in range(EACH)]
    tried, settled = set[bytes](), set[bytes]()

    async def fails(records: Sequence[SignedRecord]) -> None:
        tried.update(record.value for record in records)
        raise Unavailable("the database is away")

    async def settles(records: Sequence[SignedRecord]) -> None:
        settled.update(record.value for record in records)

    async with reading(url, fails) as stream:
        for record in sent:
            while True:
                with contextlib.suppress(Unavailable):  # the topic is being created
                    await stream.append(record)
                    break
        await until("a record to be read", lambda: bool(tried), within_s=WITHIN_S)
    async with reading(url, settles):
        await until("all to be settled", lambda: settled == {record.value for record in sent}, within_s=WITHIN_S)


@asynccontextmanager
async def reading(url: str, settle: Callable[[Sequence[SignedRecord]], Awaitable[None]]) -> AsyncIterator[KafkaResults]:
    """The result stream as an api process has it."""
    stream = open_results(url, prefix="test")
    assert stream is not None
    stream.settle_with(settle)
    await stream.start()
    try:
        yield stream
    finally:
        await stream.stop()


async def accepted(held: Held, given: wire.Assignment) -> bool:
    try:
        await held.worker.tell(given)
    except ApiUnavailable:
        return False
    return True


# Credentials and the network: a broker of its own, behind a proxy ----------------------------------------


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[KafkaServer]:
    """A broker with SASL/PLAIN whose clients are sent through a proxy."""
    server = KafkaServer(tmp_path_factory.mktemp("guarded") / "broker", user="mainspring", password="correct")
    server.advertised_port = free_port()
    await server.start()
    yield server
    server.kill()


@asynccontextmanager
async def door_of(server: KafkaServer) -> AsyncIterator[PortProxy]:
    door = PortProxy(server.advertised_port, server.port)
    listening = await door.run()
    try:
        yield door
    finally:
        listening.close()
        door.end()


@pytest.mark.parametrize("how", ["cut", "swallow"])
async def test_each_result_is_settled_once_when_the_network_fails(
    guarded: KafkaServer, fresh: Database, how: str
) -> None:
    async with door_of(guarded) as door, holding(guarded, fresh.dsn) as held:
        await held.append(held.given[:4])
        getattr(door, how)()
        appending = asyncio.create_task(held.append(held.given[4:8]))
        await until("the loss to be noticed", lambda: not held.stream.engine.connected, within_s=WITHIN_S)
        door.heal()
        await asyncio.wait_for(appending, WITHIN_S)
        await held.append(held.given[8:])
        await held.settled()


async def test_refused_credentials_are_an_error_at_start(guarded: KafkaServer) -> None:
    async with door_of(guarded):
        for credentials in ("mainspring:wrong@", "stranger:correct@"):
            stream = open_results(f"kafka://{credentials}127.0.0.1:{guarded.advertised_port}", prefix="test")
            assert stream is not None
            with pytest.raises(Invalid, match=r"--results kafka://127\.0\.0\.1:\d+: .*Invalid username or password"):
                await stream.start()
            await stream.stop()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("amqp://host", "unknown engine; use kafka://HOST:9092"),
        ("kafka://", "no host"),
        ("kafka://u:p@host?mechanism=LOGIN", "unknown mechanism 'LOGIN'"),
        ("kafka://host?ca=/ca.pem", "ca needs TLS"),
        ("kafka://host?partitions=0", "partitions must be 1 to 1024"),
        ("kafka://host?acks=0", "unknown parameter 'acks'"),
    ],
)
def test_invalid_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        open_results(url, prefix="test")


def test_a_worker_must_name_the_topics_of_its_server() -> None:
    with pytest.raises(Invalid, match="add the prefix of the server's topics"):
        open_results("kafka://host", prefix=None)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mainspring.backends.kafka_results", None)
    with pytest.raises(Invalid, match=r"needs the extra `kafka`: pip install 'mainspring\[kafka\]'"):
        open_results("kafka://user:secret@host", prefix="test")


def test_the_record_is_version_1_of_the_contract() -> None:
    execution, job, session = UUID(int=1), UUID(int=2), UUID(int=3)
    result = wire.Result(
        execution_id=execution, attempt=3, outcome="failed", duration_ms=12, exit_code=2, error="no", result={"n": 1}
    )
    value = record_of(session, [result], [], no_retry=[execution], jobs={execution: job})
    assert value.decode() == (
        '{"version":1,"session_id":"00000000-0000-0000-0000-000000000003","results":[{'
        '"execution_id":"00000000-0000-0000-0000-000000000001","job_id":"00000000-0000-0000-0000-000000000002",'
        '"attempt":3,"status":"failed","duration_ms":12,"retry_count":2,"exit_code":2,"error_message":"no",'
        '"output":{"n":1},"retry":false}],"logs":[]}'
    )

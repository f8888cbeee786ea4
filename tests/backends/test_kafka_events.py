"""Events on a real Kafka: each at least once, in order per job, whatever happens to the broker or the network."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.backends.kafka_engines import open_events
from mainspring.domain.errors import Invalid, Unavailable
from mainspring.domain.events import SUBSCRIBED
from mainspring.domain.execution import Outcome
from mainspring.store.db import Database
from mainspring.wire.event_stream import StreamEvent
from tests.conftest import Cluster, started
from tests.support.engine_servers import KafkaServer
from tests.support.fleet import ROUNDS
from tests.support.pages import sign_in
from tests.support.processes import until, until_async
from tests.support.remote_worker import Remote, remote
from tests.support.topic_reader import Tail

pytestmark = pytest.mark.anyio

WITHIN_S = 60
FOLLOWS = "SELECT bool_and(tgenabled <> 'D') FROM pg_trigger WHERE tgname ~ '^executions_c(reat|hang)ed$'"


class Streamed:
    """A cluster with an event stream, a worker whose results the test decides, and the topic as another program."""

    def __init__(self, cluster: Cluster, worker: Remote, tail: Tail) -> None:
        self.cluster, self.worker, self.tail = cluster, worker, tail

    async def settle(self, count: int, *, outcome: Outcome = "succeeded") -> set[str]:
        """Submit executions and settle them one by one; return their ids."""
        async with self.cluster.client() as client:
            await client.submit([wire.BatchItem(job="held") for _ in range(count)])
        given: list[wire.Assignment] = []
        while len(given) < count:
            given += (await self.worker.poll(count - len(given))).executions
        for one in given:
            await self.worker.tell(one, outcome=outcome)
        return {str(one.execution_id) for one in given}

    def named(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.tail.events if e["event"] == event]

    async def streamed(self, executions: set[str]) -> None:
        """Wait until the stream has the success of each execution."""

        def found() -> bool:
            return executions <= {e["data"]["execution_id"] for e in self.named("execution.succeeded")}

        await until("the stream to have every event", found, within_s=WITHIN_S)

    async def waiting(self) -> int:
        async with self.cluster.server.database.connection() as connection:
            return int(await connection.fetchval("SELECT count(*) FROM event_outbox"))


@asynccontextmanager
async def streaming(kafka: KafkaServer, dsn: str, **config: Any) -> AsyncIterator[Streamed]:
    topic = f"e{uuid4().hex[:12]}"
    retries = {"max": 1, "base": "1ms"}
    async with (
        started(dsn, events=f"{kafka.url}/{topic}?partitions=3", **config) as cluster,
        cluster.client() as client,
        remote(cluster) as worker,
    ):
        await client.create_job({"name": "held", "task": {"kind": "noop"}, "retries": retries})
        server = cluster.server
        await until("the events to be wanted", lambda: server._subscriptions.successes, within_s=WITHIN_S)

        async def follows() -> bool:
            async with server.database.connection() as connection:
                return bool(await connection.fetchval(FOLLOWS)) == (server.config.event_types == "all")

        await until_async("all events to be written", follows, within_s=WITHIN_S)
        with Tail(kafka.url.replace("kafka://", ""), topic) as tail:
            yield Streamed(cluster, worker, tail)


@pytest.fixture
async def streamed(kafka: KafkaServer, fresh: Database) -> AsyncIterator[Streamed]:
    async with streaming(kafka, fresh.dsn, session_lease_s=WITHIN_S * 4.0) as found:
        yield found


async def test_every_event_reaches_the_topic_and_leaves_the_outbox(streamed: Streamed) -> None:
    executions = await streamed.settle(20)
    await streamed.streamed(executions)

    async def empty() -> bool:
        return await streamed.waiting() == 0

    await until_async("the outbox to be empty", empty, within_s=WITHIN_S)
    found = streamed.named("execution.succeeded")
    assert len({e["event_id"] for e in found}) == len(found) == 20
    assert {e["tenant"] for e in found} == {"default"}
    assert {e["event"] for e in streamed.tail.events} <= SUBSCRIBED.keys()
    assert streamed.tail.keys == {e["data"]["job_id"] for e in found}


@pytest.mark.requirement(46)
async def test_an_event_is_version_1_of_the_contract(streamed: Streamed) -> None:
    (execution,) = await streamed.settle(1)
    await streamed.streamed({execution})
    (event,) = streamed.named("execution.succeeded")
    assert list(event) == ["version", "event_id", "event", "tenant", "occurred_at", "data"]
    assert event["version"] == 1
    data = event["data"]
    assert {"execution_id", "job_id", "status", "duration_ms", "retry_count", "error_message"} <= data.keys()
    assert (data["job"], data["status"], data["attempt"], data["retry_count"]) == ("held", "succeeded", 1, 0)
    assert event["occurred_at"].endswith("Z")
    assert StreamEvent.__struct_fields__ == tuple(event), "add fields at the end, and only optional ones"


async def test_the_events_of_a_job_are_in_their_order(streamed: Streamed) -> None:
    await streamed.settle(5, outcome="failed")
    given: list[wire.Assignment] = []
    while len(given) < 5:
        given += (await streamed.worker.poll(5)).executions
    for one in given:
        await streamed.worker.tell(one)
    await streamed.streamed({str(one.execution_id) for one in given})
    seen: dict[str, list[str]] = defaultdict(list)
    for event in streamed.tail.events:
        seen[event["data"]["execution_id"]].append(event["event"])
    assert seen.keys() == {str(one.execution_id) for one in given}
    for events in seen.values():
        names = [event.removeprefix("execution.") for event in events]
        assert names[:3] == ["created", "queued", "started"] and names[5:] == ["started", "succeeded"], names
        assert sorted(names[3:5]) == ["queued", "retrying"], "a retry without backoff is queued as the attempt ends"


async def test_a_stream_of_ends_costs_one_row_of_the_outbox_per_execution(kafka: KafkaServer, fresh: Database) -> None:
    async with streaming(kafka, fresh.dsn, event_types="ends") as streamed:
        executions = await streamed.settle(5)
        await streamed.streamed(executions)
        assert {e["event"] for e in streamed.tail.events} == {"execution.succeeded"}


@pytest.mark.parametrize("how", ["kill", "freeze"] if ROUNDS == 1 else ["kill", "freeze", "empty"])
async def test_no_event_is_lost_when_the_broker_fails(kafka: KafkaServer, streamed: Streamed, how: str) -> None:
    engine = streamed.cluster.server._events.engine  # type: ignore[union-attr]
    before = await streamed.settle(5)
    await streamed.streamed(before)
    kafka.freeze() if how == "freeze" else kafka.kill()
    try:
        await until("the loss to be noticed", lambda: not engine.connected, within_s=WITHIN_S)
        during = await streamed.settle(5)
        assert await streamed.waiting() == 5 * len(("created", "queued", "started", "succeeded"))
        if how == "kill":
            await kafka.start()
        elif how == "empty":
            await kafka.restart_empty()
    finally:
        kafka.thaw() if how == "freeze" else None
    await streamed.streamed(during | await streamed.settle(5))


async def test_an_event_is_sent_again_if_the_process_dies_before_it_recorded_that(streamed: Streamed) -> None:
    relay = next(s for s in streamed.cluster.server._services if type(s).__name__ == "EventRelay")
    publish, failed = relay._stream.publish, asyncio.Event()  # type: ignore[attr-defined]

    async def publish_and_die(events: Any) -> None:
        await publish(events)
        if not failed.is_set() and any(b"execution.succeeded" in value for _, value in events):
            failed.set()
            raise Unavailable("died")

    relay._stream.publish = publish_and_die  # type: ignore[attr-defined]
    executions = await streamed.settle(3)
    await streamed.streamed(executions)

    def again() -> bool:
        return len(streamed.named("execution.succeeded")) > 3

    await until("an event to come again", again, within_s=WITHIN_S)
    assert len({e["event_id"] for e in streamed.named("execution.succeeded")}) == 3


async def test_the_oldest_events_are_dropped_beyond_the_limit(fresh: Database) -> None:
    absent = KafkaServer(Path("absent"))
    async with started(fresh.dsn, events=f"{absent.url}/none", events_waiting=1_000) as cluster:
        relay = next(s for s in cluster.server._services if type(s).__name__ == "EventRelay")
        async with cluster.server.database.connection() as connection:
            await connection.execute(
                "INSERT INTO event_outbox (event_id, tenant_id, event, key, body)"
                " SELECT gen_random_uuid(), 1, 'execution.succeeded', n, '{}' FROM generate_series(1, 1500) n"
            )
        await relay.limit()  # type: ignore[attr-defined]
        async with cluster.server.database.connection() as connection:
            row = await connection.fetchrow("SELECT count(*) AS n, min(key::int) AS first FROM event_outbox")
        assert row is not None and (row["n"], row["first"]) == (1000, 501)


async def test_nothing_is_written_without_a_stream(fresh: Database) -> None:
    async with started(fresh.dsn) as cluster, cluster.client() as client, remote(cluster) as worker:
        await client.create_job({"name": "held", "task": {"kind": "noop"}})
        found = Streamed(cluster, worker, None)  # type: ignore[arg-type]
        await found.settle(2, outcome="failed")
        assert await found.waiting() == 0


async def test_a_lost_stream_shows_with_its_backlog(kafka: KafkaServer, streamed: Streamed) -> None:
    cluster = streamed.cluster
    http = httpx2.AsyncClient(base_url=cluster.url, headers={"sec-fetch-site": "same-origin"}, trust_env=False)
    async with http as browser, cluster.client() as client:
        await sign_in(browser, cluster.token)

        async def page_shows(text: str) -> bool:
            return text in (await browser.get("/system")).text

        kafka.freeze()
        try:
            degraded = "not connected: events wait in the outbox"
            await until_async("the page has the loss", lambda: page_shows(degraded), within_s=40)
            notes = [note for note in (await client.doctor()).notes if "(events)" in note]
            assert len(notes) == 1 and "(events): events wait in the outbox" in notes[0], notes
        finally:
            kafka.thaw()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("amqp://host/topic", "--events amqp://host: unknown engine"),
        ("kafka://host/a%20b", "not a topic name"),
        ("kafka://host/..", "not a topic name"),
    ],
)
def test_invalid_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        open_events(url, prefix="test")

"""The worker protocol: what is given out, taken back, and refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any, get_args
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.api import context
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.dispatch import heartbeat, service, session_cache
from mainspring.domain.grants import EVERYTHING
from mainspring.store import claims, sessions
from mainspring.wire import Poll
from mainspring.worker.transport.api_client import Refused, SessionEnded
from tests.conftest import Cluster
from tests.support.remote_worker import remote


@pytest.fixture
def queue() -> str:
    """A queue of the test's own."""
    return f"q{uuid4().hex}"


async def submit(client: AsyncClient, queue: str, count: int = 1, **spec: Any) -> list[UUID]:
    job = await client.create_job(
        {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 0}, **spec}
    )
    return [(await client.trigger(job.name)).execution_id for _ in range(count)]


async def test_register_poll_report(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        ids = await submit(client, queue, 3)
        polled = await worker.poll(free=2)
        assert [given.execution_id for given in polled.executions] == ids[:2], "no more than it has slots for"
        assert {given.definition for given in polled.executions} == set(polled.definitions)
        for given in polled.executions:
            assert (given.attempt, (await client.execution(given.execution_id)).state) == (1, "running")
            assert (await worker.tell(given)).stale == []
            assert (await client.execution(given.execution_id)).state == "succeeded"
        assert [given.execution_id for given in (await worker.poll()).executions] == ids[2:]


@pytest.mark.requirement(87)
async def test_a_worker_registers_beats_polls_and_reports_and_is_listed_as_it_is(cluster: Cluster, queue: str) -> None:
    has: dict[str, Any] = {"slots": 4, "resources": {"cpu": 2000, "memory": 2**30}, "labels": {"zone": "b"}}
    async with cluster.client() as client, remote(cluster, queue=queue, name=queue, **has) as worker:

        async def listed() -> wire.Worker:
            return next(w for w in (await client.workers()).items if w.name == queue)

        begun = await listed()
        assert (begun.host, begun.slots, begun.busy, begun.state) == ("here", 4, 0, "idle")
        assert (begun.labels, begun.resources) == (has["labels"], has["resources"])
        (execution,) = await submit(client, queue)
        (given,) = (await worker.poll(free=4)).executions
        await worker.beat(given.execution_id)
        beaten = await listed()
        assert (beaten.busy, beaten.state, beaten.seen_at > begun.seen_at) == (1, "busy", True)
        assert (await client.execution(execution)).worker == queue, "what it runs is told of the execution"

        result = wire.Result(
            execution_id=execution,
            attempt=1,
            outcome="failed",
            duration_ms=1234,
            exit_code=3,
            error="the disk is full",
        )
        output = [
            wire.Output(execution_id=execution, attempt=1, seq=n, stream=stream, data=stream.encode())
            for n, stream in enumerate(get_args(wire.Stream)[:2])
        ]
        report = wire.Results(session_id=worker.session_id, results=[result], output=output)
        assert (await worker.link.results(report)).stale == []
        ended = await client.execution(execution)
        assert (ended.state, ended.exit_code, ended.duration_ms, ended.error) == ("failed", 3, 1234, "the disk is full")
        assert [(c.stream, c.text) for c in (await client.logs(execution)).chunks] == [
            ("stdout", "stdout"),
            ("stderr", "stderr"),
        ]
        late = msgspec.structs.replace(report, results=[msgspec.structs.replace(result, outcome="succeeded")])
        assert (await worker.link.results(late)).stale == [execution]
        assert await client.execution(execution) == ended


async def test_a_fleet_that_comes_back_all_at_once_leaves_room_for_heartbeats(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While registrations and first polls stand still in the database, as many as may, a heartbeat is answered."""
    held, begun = asyncio.Event(), asyncio.Event()
    waiting: Counter[str] = Counter()

    def standing(name: str, real: Any) -> Any:
        async def stand(*args: Any, **named: Any) -> Any:
            waiting[name] += 1
            if waiting.total() == context.CONCURRENT_REGISTRATIONS + session_cache.MAX_LOOKUPS:
                begun.set()
            await held.wait()
            return await real(*args, **named)

        return stand

    async with remote(cluster, queue=queue) as worker, asyncio.TaskGroup() as fleet:
        strangers = [Poll(session_id=uuid4(), free=1, wait_s=1) for _ in range(20)]
        for name in ("insert_session", "session_by_id"):
            monkeypatch.setattr(sessions, name, standing(name, getattr(sessions, name)))
        register = wire.Register(name=queue, host="h", version="1", slots=1, queues=[queue], kinds=["noop"])
        for stranger in strangers:
            fleet.create_task(worker.link.register(register))
            fleet.create_task(refused(worker.link.poll(stranger)))
        try:
            await asyncio.wait_for(begun.wait(), 30)
            assert (await worker.beat()).gone == []
            assert waiting == {
                "insert_session": context.CONCURRENT_REGISTRATIONS,
                "session_by_id": session_cache.MAX_LOOKUPS,
            }
        finally:
            held.set()


async def refused(asked: Awaitable[Any]) -> None:
    with pytest.raises(SessionEnded):
        await asked


async def test_a_result_whose_answer_was_lost_can_be_told_again(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await submit(client, queue)
        (given,) = (await worker.poll()).executions
        assert (await worker.tell(given, "succeeded", b"one\n", b"two\n")).stale == []
        first = await client.execution(given.execution_id)
        again = await worker.tell(given, "succeeded", b"one\n", b"two\n")
        assert again.stale == [given.execution_id]
        assert (await worker.tell(given, "failed")).stale == [given.execution_id]
        assert await client.execution(given.execution_id) == first
        chunks = (await client.logs(given.execution_id)).chunks
        assert "".join(chunk.text for chunk in chunks) == "one\ntwo\n", "and its output is there once"


async def test_output_told_twice_is_kept_once(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await submit(client, queue)
        (given,) = (await worker.poll()).executions
        chunk = wire.Output(execution_id=given.execution_id, attempt=1, seq=0, stream="stdout", data=b"x")
        for _ in range(2):
            await worker.link.results(wire.Results(session_id=worker.session_id, results=[], output=[chunk]))
        assert [c.text for c in (await client.logs(given.execution_id)).chunks] == ["x"]


async def test_another_sessions_results_and_output_are_refused(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue) as worker,
        remote(cluster, name="other", queue=queue) as other,
    ):
        await submit(client, queue)
        (given,) = (await worker.poll()).executions
        assert (await other.tell(given, "succeeded", b"forged")).stale == [given.execution_id]
        assert (await client.execution(given.execution_id)).state == "running"
        assert (await client.logs(given.execution_id)).chunks == []
        assert (await worker.tell(given)).stale == []


async def test_what_an_answer_lost_on_its_way_carried_is_given_out_again(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await submit(client, queue, 2)
        lost, kept = (await worker.poll(free=2)).executions
        await worker.beat(kept.execution_id)
        assert (await client.execution(lost.execution_id)).state == "running", "the answer may still be on its way"
        monkeypatch.setattr(heartbeat, "UNKNOWN_AFTER_S", 0.0)
        await worker.beat(kept.execution_id)
        found = await client.execution(lost.execution_id)
        assert (found.state, [a.outcome for a in found.attempts]) == ("queued", ["preempted"])
        assert (await client.execution(kept.execution_id)).state == "running"
        (again,) = (await worker.poll()).executions
        assert (again.execution_id, again.attempt) == (lost.execution_id, 2)
        await worker.tell(again)
        assert (await client.execution(lost.execution_id)).state == "succeeded", "no retry was charged for it"


async def test_an_ended_session_is_told_so(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await submit(client, queue)
        (given,) = (await worker.poll()).executions
        waiting = asyncio.create_task(worker.poll())
        await worker.beat(given.execution_id)  # the poll is in by then
        await worker.goodbye(lost=True)
        assert (await waiting).executions == []
        found = await client.execution(given.execution_id)
        assert (found.state, [a.outcome for a in found.attempts]) == ("lost", ["lost"])
        with pytest.raises(SessionEnded):
            await worker.beat()
        with pytest.raises(SessionEnded):
            await worker.poll()
        assert (await worker.tell(given)).stale == [given.execution_id]


async def test_a_session_nobody_began(cluster: Cluster) -> None:
    async with remote(cluster) as worker:
        worker.session_id, mine = uuid4(), worker.session_id
        with pytest.raises(SessionEnded):
            await worker.poll()
        with pytest.raises(SessionEnded):
            await worker.beat()
        worker.session_id = mine


async def test_another_tenants_session_is_nobodys(cluster: Cluster, queue: str) -> None:
    from mainspring.api.auth import issue_token
    from mainspring.worker.transport.api_client import ApiAddress, ApiClient

    async with cluster.database.connection() as connection:
        tenant = await connection.fetchval("INSERT INTO tenants (name) VALUES ('far') RETURNING tenant_id")
        token = await issue_token(connection, tenant=tenant, name="far worker", scopes=("worker",), grants=EVERYTHING)
    link = ApiClient(ApiAddress(cluster.url, token))
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await submit(client, queue, 2)
        (given,) = (await worker.poll()).executions
        with pytest.raises(SessionEnded):
            await link.poll(wire.Poll(session_id=worker.session_id, free=1, wait_s=0))
        result = wire.Result(execution_id=given.execution_id, attempt=1, outcome="failed", duration_ms=1)
        with pytest.raises(SessionEnded):
            await link.results(wire.Results(session_id=worker.session_id, results=[result]))
        with pytest.raises(SessionEnded):
            await link.end_session(worker.session_id, lost=True)
        assert (await client.execution(given.execution_id)).state == "running"
        await worker.beat(given.execution_id)
        register = wire.Register(name="far", host="h", version="1", slots=9, queues=[queue], kinds=["noop"])
        theirs = await link.register(register)
        polled = await link.poll(wire.Poll(session_id=theirs.session_id, free=9, wait_s=0.2))
        assert polled.executions == [], "a queue's name is a tenant's own"
    await link.close()


async def test_another_protocol_is_refused_with_advice(cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.worker_token}", "Mainspring-Protocol": "99"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as http:
        for path, body in (
            ("sessions", wire.Register(name="n", host="h", version="9", slots=1, queues=["short"], kinds=["noop"])),
            ("poll", wire.Poll(session_id=uuid4(), free=1)),
            ("heartbeat", wire.Heartbeat(session_id=uuid4(), running=[])),
            ("results", wire.Results(session_id=uuid4(), results=[])),
        ):
            answer = await http.post(f"/api/v1/worker/{path}", content=encode(body))
            assert (answer.status_code, answer.json()["code"]) == (422, "protocol")
            assert "upgrade the older" in answer.json()["detail"]


async def test_a_bad_queue_name_is_refused(cluster: Cluster) -> None:
    async with remote(cluster) as worker:
        register = wire.Register(name="n", host="h", version="1", slots=1, queues=["No Queue"], kinds=["noop"])
        with pytest.raises(Refused, match="not a queue name"):
            await worker.link.register(register)


async def test_work_wakes_a_waiting_worker(cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        waiting = asyncio.create_task(worker.poll(wait_s=30))
        await worker.beat()
        ids = await submit(client, queue)
        polled = await asyncio.wait_for(waiting, 10)
        assert [given.execution_id for given in polled.executions] == ids


async def test_a_wait_ends_with_nothing(cluster: Cluster, queue: str) -> None:
    async with remote(cluster, queue=queue) as worker:
        assert (await worker.poll(wait_s=0.05)).executions == []


async def test_a_second_poll_relieves_the_first(cluster: Cluster, queue: str) -> None:
    """As after a broken connection: the older one may have nobody behind it."""
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        first = asyncio.create_task(worker.poll(wait_s=30))
        await worker.beat()
        second = asyncio.create_task(worker.poll(wait_s=30))
        assert (await asyncio.wait_for(first, 10)).executions == []
        ids = await submit(client, queue)
        assert [given.execution_id for given in (await second).executions] == ids


async def test_waiting_workers_share_the_work(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, name="one", queue=queue) as one,
        remote(cluster, name="two", queue=queue) as two,
    ):
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        waiting = [asyncio.create_task(worker.poll(free=4, wait_s=30)) for worker in (one, two)]
        await one.beat()
        await two.beat()
        await client.submit([wire.BatchItem(job=job.name) for _ in range(4)])
        shares = [len((await poll).executions) for poll in waiting]
        assert shares == [2, 2]


@pytest.mark.parametrize("between", [False, True], ids=["while it polls", "between two polls"])
async def test_a_cancellation_reaches_a_full_worker_at_once(cluster: Cluster, queue: str, between: bool) -> None:
    """Long before the next heartbeat, also when nobody was polling at that moment."""
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        (execution,) = await submit(client, queue)
        (given,) = (await worker.poll()).executions
        waiting = None if between else asyncio.create_task(worker.poll(free=0, wait_s=30))
        await worker.beat(execution)
        await client.cancel(execution)
        polled = await asyncio.wait_for(waiting or worker.poll(free=0, wait_s=30), 10)
        assert polled.cancels == [execution]
        assert (await worker.beat(execution)).cancels == [execution], "until it has ended"
        await worker.tell(given, "failed")
        assert (await client.execution(execution)).state == "cancelled"


async def test_a_draining_session_gets_nothing_more(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, name="drainer") as worker:
        await worker.beat(draining=True)
        (execution,) = await submit(client, queue)
        assert (await worker.poll(wait_s=0.2)).executions == []
        assert (await client.execution(execution)).state == "queued"
        assert {w.name: w.state for w in (await client.workers()).items}["drainer"] == "draining"


async def test_a_poll_that_is_relieved_takes_along_what_is_being_claimed_for_it(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker renews its poll: what was claimed for the old one must not wait for a heartbeat to be missed."""
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = claims.claim

    async def slowly(connection: Any, **given: Any) -> Any:
        rows = await claim(connection, **given)
        claiming.set()
        await go_on.wait()
        return rows

    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        monkeypatch.setattr(claims, "claim", slowly)
        first = asyncio.create_task(worker.poll(wait_s=30))
        ids = await submit(client, queue)
        await asyncio.wait_for(claiming.wait(), 10)
        second = asyncio.create_task(worker.poll(free=0, wait_s=0))
        await worker.beat()  # the second poll is in by then
        go_on.set()
        assert [given.execution_id for given in (await asyncio.wait_for(first, 10)).executions] == ids
        assert (await asyncio.wait_for(second, 10)).executions == []


async def test_a_worker_that_disclaims_is_asked_before_another_gets_what_it_does_not_name(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat may be older than the delivery of the attempt, and be read later: only the worker knows."""
    async with cluster.client() as client, remote(cluster, queue=queue, takes=["preempt", "disclaim"]) as worker:
        await submit(client, queue, 2)
        lost, kept = (await worker.poll(free=2)).executions
        monkeypatch.setattr(heartbeat, "UNKNOWN_AFTER_S", 0.0)
        for _ in range(2):
            answer = await worker.beat(kept.execution_id)
            assert [(p.execution_id, p.attempt) for p in answer.preempts] == [(lost.execution_id, 1)]
            assert (await client.execution(lost.execution_id)).state == "running"
        await worker.tell(lost, "preempted")
        (again,) = (await worker.poll()).executions
        assert (again.execution_id, again.attempt) == (lost.execution_id, 2)
        await worker.tell(again)
        found = await client.execution(lost.execution_id)
        assert found.state == "succeeded", "no retry was charged for it"

"""Work over the worker stream: what is sent, sent again, handed over, stopped and recalled."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.dispatch import assignments, preemption_victims, service, streams
from mainspring.embedded.server import EmbeddedServer
from mainspring.store import claims
from tests.conftest import Cluster, clone, started
from tests.support.processes import until
from tests.support.remote_stream import stream_of, streaming
from tests.support.remote_worker import remote


@pytest.fixture
def queue() -> str:
    """A queue of the test's own."""
    return f"q{uuid4().hex}"


async def make(client: AsyncClient, queue: str, **spec: Any) -> str:
    job = {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 0}, **spec}
    return (await client.create_job(job)).name


async def submit(client: AsyncClient, queue: str, count: int = 1, **spec: Any) -> list[UUID]:
    name = await make(client, queue, **spec)
    return [(await client.trigger(name)).execution_id for _ in range(count)]


async def states(client: AsyncClient, ids: list[UUID]) -> list[tuple[str, int]]:
    found = [await client.execution(execution) for execution in ids]
    return [(execution.state, execution.attempt) for execution in found]


async def at_rest(cluster: Cluster, queue: str) -> None:
    """Until the dispatcher knows that nothing of this queue is queued."""
    dispatcher = cluster.context.dispatcher

    def rests() -> bool:
        return not (
            any(line.queue == queue for line in dispatcher._known.fresh)
            or dispatcher._known.unknown
            or dispatcher._settings.stale
            or any(worker.in_claim for worker in dispatcher._waiting.by_session.values())
        )

    await until("rest", rests, within_s=10)


async def test_work_arrives_as_far_as_the_stated_capacity_allows(cluster: Cluster, queue: str) -> None:
    async with streaming(cluster, queue, slots=4, free=2) as (client, _, stream):
        ids = await submit(client, queue, 5)
        given = await stream.received(2)
        assert [g.execution_id for g in given] == ids[:2]
        assert await states(client, ids) == [("running", 1)] * 2 + [("queued", 0)] * 3
        assert await stream.settle(given[0], free=1) == []
        await stream.received(3)
        assert stream.ids == ids[:3]
        await stream.state(100)  # counts as 4, all it has
        await stream.received(5)
        assert await stream.settle(*stream.executions[1:], free=4) == []
        assert await states(client, ids) == [("succeeded", 1)] * 5


async def test_a_statement_that_crosses_work_on_its_way_frees_nothing(cluster: Cluster, queue: str) -> None:
    async with streaming(cluster, queue, slots=2, free=2) as (client, _, stream):
        ids = await submit(client, queue, 4)
        await stream.received(2)
        await stream.state(2, received=0)
        await stream.state(2, received=1)  # one free slot, which the other one has taken
        await stream.synced()
        assert stream.ids == ids[:2]
        await stream.state(1)
        await stream.received(3)
        await stream.synced()
        assert stream.ids == ids[:3]


async def test_after_demanding_work_nothing_is_sent_until_the_worker_states(cluster: Cluster, queue: str) -> None:
    """And statements from before that work do not count."""
    has = {"gpu": 2}
    async with streaming(cluster, queue, slots=4, resources=has) as (client, _, stream):
        name = await make(client, queue, resources={"gpu": 2})
        first, second = [(await client.trigger(name)).execution_id for _ in range(2)]
        await stream.state(4)
        await stream.received(1)
        (plain,) = await submit(client, queue)
        await stream.state(4, received=0)
        await stream.synced()
        assert stream.ids == [first]
        await stream.state(3, resources={"gpu": 0})
        await stream.received(2)
        assert stream.ids == [first, plain], "what needs no gpu"
        await stream.settle(stream.executions[0])
        await stream.state(3, resources={"gpu": 1})
        await stream.synced()
        assert stream.ids == [first, plain], "one gpu is not enough"
        await stream.state(3, resources={"gpu": 2})
        await stream.received(3)
        assert stream.ids == [first, plain, second]


async def test_plain_work_beside_demanding_work_of_another_worker_does_not_stop_the_stream(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come from one claim; only the worker with the demanding one has to state first."""
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue, slots=4, name="a", resources={"gpu": 1}) as one,
        remote(cluster, queue=queue, slots=4, name="b") as two,
        stream_of(cluster, one.session_id) as first,
        stream_of(cluster, two.session_id) as second,
    ):
        demanding = await submit(client, queue, resources={"gpu": 1})
        plain = await submit(client, queue)
        held = asyncio.Event()
        real = claims.claim

        async def together(connection: Any, **given: Any) -> Any:
            await held.wait()
            return await real(connection, **given)

        monkeypatch.setattr(claims, "claim", together)
        await first.state(1)
        await second.state(4)
        held.set()
        await first.received(1)
        assert first.ids == demanding
        await second.received(1)
        assert second.ids == plain
        more = await submit(client, queue)
        await second.received(2)
        assert second.ids == plain + more, "its other slots are used without a new statement"


async def test_an_exclusive_execution_runs_alone(cluster: Cluster, queue: str) -> None:
    async with streaming(cluster, queue, slots=4, free=4) as (client, _, stream):
        (plain,) = await submit(client, queue)
        await stream.received(1)
        (alone,) = await submit(client, queue, exclusive=True)
        await stream.state(3)
        await stream.synced()
        assert stream.ids == [plain]
        await stream.settle(stream.executions[0], free=4)
        await stream.received(2)
        assert stream.ids == [plain, alone]
        (other,) = await submit(client, queue)
        await stream.state(0)
        await stream.synced()
        assert stream.ids == [plain, alone]
        await stream.settle(stream.executions[1], free=4)
        await stream.received(3)
        assert stream.ids == [plain, alone, other]


async def test_submissions_are_handed_to_streams_without_a_queue(
    postgres: EmbeddedServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several at once: each is answered as running, and received once, by the streams that have room."""
    monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)  # while it looks at the queue, nothing is handed over
    async with (
        started(await clone(postgres)) as cluster,
        streaming(cluster, queue, free=1, name="a") as (client, _, first),
        remote(cluster, queue=queue, slots=4, name="b") as other,
        stream_of(cluster, other.session_id) as second,
    ):
        name = await make(client, queue)
        await client.trigger(name)
        await first.settle(*await first.received(1), free=4)
        await second.state(4)
        await second.synced()
        await at_rest(cluster, queue)
        answers = await asyncio.gather(*[client.trigger(name) for _ in range(8)])
        assert [answer.state for answer in answers] == ["running"] * 8
        await first.received(5)
        await second.received(4)
        got = first.ids[1:] + second.ids
        assert sorted(got) == sorted(answer.execution_id for answer in answers)
        assert (await client.trigger(name)).state == "queued", "there is no room for a ninth"
        await first.settle(*first.executions[1:], free=4)
        await first.received(6)
        assert await second.settle(*second.executions) == []
        assert await first.settle(first.executions[-1]) == []


async def test_cancellations_and_preemptions_arrive_while_every_slot_is_busy(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption_victims, "MIN_RUN_S", 0.001)
    async with streaming(cluster, queue, slots=2, free=2, takes=["preempt"]) as (client, _, stream):
        await client.set_queue(queue, {"patience_s": 0.1})
        (cancelled,) = await submit(client, queue, priority=9)
        (victim,) = await submit(client, queue, priority=2, preemptible=True)
        await stream.received(2)
        await client.cancel(cancelled)
        await stream.until(lambda: stream.cancels == [cancelled])
        (urgent,) = await submit(client, queue, priority=8)
        await stream.until(lambda: [(p.execution_id, p.attempt) for p in stream.preempts] == [(victim, 1)])
        assert await stream.settle(stream.executions[0], outcome="cancelled", free=0) == []
        assert await stream.settle(stream.executions[1], outcome="preempted", free=1) == []
        await stream.received(3)
        assert stream.ids[2] == urgent
        assert await states(client, [cancelled, victim]) == [("cancelled", 1), ("queued", 1)]


async def test_what_was_sent_before_a_recall_arrives_before_its_answer(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is being claimed while the recall is on its way. Afterwards nothing is sent until it states again."""
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = claims.claim

    async def slowly(connection: Any, **given: Any) -> Any:
        rows = await claim(connection, **given)
        if rows:
            claiming.set()
            await go_on.wait()
        return rows

    async with streaming(cluster, queue, slots=4, free=4) as (client, _, stream):
        monkeypatch.setattr(claims, "claim", slowly)
        ids = await submit(client, queue)
        await asyncio.wait_for(claiming.wait(), 10)
        recalled = asyncio.create_task(stream.call(wire.Recall))
        await stream.synced()
        assert not recalled.done() and stream.ids == []
        go_on.set()
        await recalled
        kinds = [type(message) for message in stream.order]
        assert stream.ids == ids and kinds[-2:] == [wire.Work, wire.Answer]
        later = await submit(client, queue, 2)
        await stream.state(4, received=0)  # older than the recall
        await stream.synced()
        assert stream.ids == ids
        await stream.state(3)
        await stream.received(3)
        assert stream.ids == ids + later


async def test_what_was_lost_on_the_way_is_sent_again_by_the_next_stream(cluster: Cluster, queue: str) -> None:
    """As the same attempt, and without what the worker names as held; and the slots are counted."""
    async with cluster.client() as client, remote(cluster, queue=queue, slots=4) as worker:
        ids = await submit(client, queue, 3)
        async with stream_of(cluster, worker.session_id, free=4) as stream:
            await stream.received(3)
        async with stream_of(cluster, worker.session_id, free=3, held=ids[:1]) as stream:
            await stream.received(2)
            assert [(g.execution_id, g.attempt) for g in stream.executions] == [(e, 1) for e in ids[1:]]
            more = await submit(client, queue, 2)
            await stream.received(3)
            await stream.synced()
            assert stream.ids == [*ids[1:], more[0]], "the slots of what was sent again are counted"


async def test_a_cancellation_follows_an_execution_that_is_sent_again(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=4) as worker:
        ids = await submit(client, queue)
        async with stream_of(cluster, worker.session_id, free=1) as stream:
            await stream.received(1)
        await client.cancel(ids[0])
        async with stream_of(cluster, worker.session_id, free=1, held=[]) as stream:
            await stream.until(lambda: stream.ids == ids and stream.cancels == ids)


async def test_a_long_execution_sent_again_leaves_the_other_slots_usable(
    cluster: Cluster, database_url: str, queue: str
) -> None:
    """At an api process that does not know its line yet."""
    async with cluster.client() as client, remote(cluster, queue=queue, slots=4) as worker:
        ids = await submit(client, queue)
        async with stream_of(cluster, worker.session_id, free=1) as stream:
            await stream.received(1)
        async with (
            started(database_url, roles=("api",)) as other,
            stream_of(other, worker.session_id, free=4, held=[], token=cluster.worker_token) as stream,
        ):
            await stream.received(1)
            assert stream.ids == ids
            ids += await submit(client, queue, 3)
            await stream.received(4)
            assert sorted(stream.ids) == sorted(ids)


async def test_a_second_stream_takes_over_from_the_first(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that is being claimed for the first one is not lost."""
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = claims.claim

    async def slowly(connection: Any, **given: Any) -> Any:
        rows = await claim(connection, **given)
        if rows:
            claiming.set()
            await go_on.wait()
        return rows

    async with streaming(cluster, queue, slots=4, free=4) as (client, worker, first):
        monkeypatch.setattr(claims, "claim", slowly)
        ids = await submit(client, queue)
        await asyncio.wait_for(claiming.wait(), 10)
        opening = asyncio.create_task(first.end())
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        async with stream_of(cluster, worker.session_id, free=4, held=[]) as second:
            await second.received(1)
            assert set(second.ids) == set(ids)
            await opening
            assert first.order[-1] == wire.Closing()
            await second.state(3)  # what was being claimed may arrive twice
            more = await submit(client, queue, 3)
            await second.until(lambda: set(second.ids) == {*ids, *more})


async def test_a_poll_takes_over_from_a_stream_and_a_stream_from_a_poll(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=4) as worker:
        async with stream_of(cluster, worker.session_id, free=4) as stream:
            polling = asyncio.create_task(worker.ids(free=1, wait_s=30))
            await stream.end()
            ids = await submit(client, queue)
            assert await polling == ids
        polling = asyncio.create_task(worker.ids(free=1, wait_s=30))
        while worker.session_id not in cluster.context.dispatcher._waiting.by_session:
            await asyncio.sleep(0)
        async with stream_of(cluster, worker.session_id, free=4, held=ids) as stream:
            assert await asyncio.wait_for(polling, 10) == []
            ids += await submit(client, queue)
            await stream.received(1)
            assert stream.ids == ids[1:]


async def test_definitions_are_sent_once_and_again_after_they_were_forgotten(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_KNOWN_DEFINITIONS", 2)
    async with cluster.client() as client, remote(cluster, queue=queue, slots=100) as worker:
        names = [await make(client, queue) for _ in range(3)]
        async with stream_of(cluster, worker.session_id, free=100) as stream:
            for name in [names[0], names[0], names[1], names[0], names[2], names[0]]:
                before = len(stream.executions)
                await client.trigger(name)
                await stream.received(before + 1)
            works = [work for work in stream.work if work.executions]
            sent = [(len(work.definitions), work.forget) for work in works]
            assert sent == [(1, False), (0, False), (1, False), (0, False), (1, True), (1, False)]
            for work in works:
                assert all(work.definitions[name].name in names for name in work.definitions)
            assert {given.definition for given in works[0].executions} == set(works[0].definitions)


async def test_an_api_that_drains_closes_its_streams_after_what_it_is_claiming(
    database_url: str, cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = claims.claim

    async def slowly(connection: Any, **given: Any) -> Any:
        rows = await claim(connection, **given)
        if rows:
            claiming.set()
            await go_on.wait()
        return rows

    async with (
        started(database_url, roles=("api",)) as other,
        cluster.client() as client,
        remote(cluster, queue=queue, slots=4) as worker,
    ):
        async with stream_of(other, worker.session_id, free=1, token=cluster.worker_token) as stream:
            monkeypatch.setattr(claims, "claim", slowly)
            ids = await submit(client, queue, 2)
            await asyncio.wait_for(claiming.wait(), 10)
            draining = asyncio.create_task(other.context.dispatcher.drain())
            asyncio.get_running_loop().call_later(0.2, go_on.set)
            await stream.end()
            await draining
            assert stream.ids == ids[:1], "what it was claiming arrives before the end"
            assert stream.order[-1] == wire.Closing()
        async with stream_of(other, worker.session_id, free=1, held=ids[:1], token=cluster.worker_token) as refused:
            assert (refused.status, refused.problem["code"]) == (503, "unavailable")
        async with stream_of(cluster, worker.session_id, free=1, held=ids[:1]) as stream:
            await stream.received(1)
            assert stream.ids == ids[1:]


async def test_the_end_of_a_session_ends_its_stream(cluster: Cluster, queue: str) -> None:
    async with remote(cluster, queue=queue) as worker, stream_of(cluster, worker.session_id, free=1) as stream:
        await worker.goodbye()
        await stream.end()
        assert stream.order == [wire.Closing(session_ended=True)]
        async with stream_of(cluster, worker.session_id, free=1) as again:
            assert (again.status, again.problem["code"]) == (409, "session_ended")


async def test_silent_streams_are_closed(database_url: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SILENT_S", 0.3)
    async with started(database_url, roles=("api",)) as cluster, remote(cluster, queue=queue) as worker:
        async with stream_of(cluster, worker.session_id, free=1) as stream:
            await stream.end()
            assert stream.order == [wire.Closing()]
            assert worker.session_id not in cluster.context.dispatcher._waiting.by_session
        async with stream_of(cluster, worker.session_id, free=1) as stream:
            begun = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < begun + 3 * service.SILENT_S:
                await stream.synced()
            assert not stream.ended, "one that sends something stays open"


@pytest.mark.parametrize("handed_over", [True, False])
async def test_what_is_on_its_way_to_a_stream_that_ends_is_sent_by_the_next(
    cluster: Cluster, queue: str, handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next stream opens before the claim, or the handoff, has been committed."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    send = assignments.Assignments.send

    async def slowly(self: Any, rows: Any, workers: Any, connection: Any = None) -> None:
        if not go_on.is_set():
            begun.set()
            await go_on.wait()
        await send(self, rows, workers, connection)

    async with streaming(cluster, queue, free=1) as (client, worker, stream):
        name = await make(client, queue)
        await client.trigger(name)
        await stream.settle(*await stream.received(1), free=1 if handed_over else 0)
        if handed_over:
            await at_rest(cluster, queue)
        monkeypatch.setattr(assignments.Assignments, "send", slowly)
        triggering = asyncio.create_task(client.trigger(name))
        if not handed_over:
            await triggering
            await stream.state(1)
        await asyncio.wait_for(begun.wait(), 10)
        stream.close()
        waiting = cluster.context.dispatcher._waiting
        while waiting.by_session[worker.session_id].is_open:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        async with stream_of(cluster, worker.session_id, free=1, held=[]) as following:
            (given,) = await following.received(1)
            execution = (await triggering).execution_id
            assert (given.execution_id, given.attempt) == (execution, 1)
            await following.synced()
            assert following.ids == [execution], "once"

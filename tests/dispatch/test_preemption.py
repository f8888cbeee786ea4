"""Urgent work takes the place of preemptible work, which goes on later and always gets further."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.dispatch import preemption_victims
from mainspring.domain.errors import Invalid
from mainspring.domain.execution import Outcome
from mainspring.domain.settlement import AttemptResult
from mainspring.results.batch import Report
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.conftest import Cluster
from tests.support.dispatchers import Fleet, fleet
from tests.support.processes import until_async
from tests.support.remote_worker import remote

NEVER = {"retries": {"max": 0}}


@pytest.fixture
def queue() -> str:
    """A queue of the test's own."""
    return f"q{uuid4().hex}"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_victims, "MIN_RUN_S", 0.001)


async def submit(client: AsyncClient, queue: str, name: str, **spec: Any) -> UUID:
    job = await client.create_job(
        {"name": f"{name}-{queue}", "task": {"kind": "noop"}, "queue": queue, **NEVER, **spec}
    )
    return (await client.trigger(job.name)).execution_id


async def test_the_place_that_is_made_is_for_the_one_that_asked(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=1, takes=["preempt"]) as worker:
        await client.set_queue(queue, {"patience_s": 0.2})
        victim = await submit(client, queue, "victim", preemptible=True, priority=2)
        (given,) = (await worker.poll()).executions
        third = await submit(client, queue, "third", priority=2)
        urgent = await submit(client, queue, "urgent", priority=8)
        polled = await worker.poll(free=0)
        assert [(p.execution_id, p.attempt) for p in polled.preempts] == [(victim, 1)]
        assert [p.execution_id for p in (await worker.beat(victim)).preempts] == [victim], "the heartbeat says so, too"
        why = {e: await client.why(e) for e in (victim, urgent, third)}
        assert [r.code for r in why[victim].reasons] == ["running", "preempted"]
        assert why[urgent].reasons[0].code == "making_room"
        assert why[urgent].reasons[0].holders == [victim]
        assert f"it preempts victim-{queue} on remote" in why[urgent].reasons[0].message
        assert "making_room" not in [r.code for r in why[third].reasons]
        await worker.tell(given, "preempted")
        assert await worker.ids() == [urgent], "neither the third nor the victim, whoever has waited longer"
        found = await client.execution(victim)
        assert (found.state, [a.outcome for a in found.attempts]) == ("queued", ["preempted"])
        assert found.attempts[0].error == f"preempted by urgent-{queue} {urgent}"
        assert "preempted" in [r.code for r in (await client.why(victim)).reasons]
        assert (await client.execution(third)).state == "queued"


async def test_equals_and_what_is_not_preemptible_stay(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=2, takes=["preempt"]) as worker:
        await client.set_queue(queue, {"patience_s": 0})
        await submit(client, queue, "equal", preemptible=True, priority=8)
        await submit(client, queue, "firm", priority=1)
        assert (
            len((await worker.poll(free=2)).executions) + len((await worker.poll(free=1, wait_s=0.5)).executions) == 2
        )
        await submit(client, queue, "urgent", priority=8)
        assert (await worker.poll(free=0, wait_s=1)).preempts == []
        with pytest.raises(Invalid) as refused:
            await submit(client, queue, "once", preemptible=True, delivery="at_most_once")
        assert [problem.pointer for problem in refused.value.problems] == ["/preemptible"]


async def test_a_person_who_cancels_is_heard_before_the_one_who_asks_for_room(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=1, takes=["preempt"]) as worker:
        await client.set_queue(queue, {"patience_s": 0})
        victim = await submit(client, queue, "victim", preemptible=True, priority=2)
        (given,) = (await worker.poll()).executions
        urgent = await submit(client, queue, "urgent", priority=8)
        assert (await worker.poll(free=0)).preempts
        await client.cancel(victim)
        await worker.tell(given, "preempted")
        assert (await client.execution(victim)).state == "cancelled"
        assert await worker.ids() == [urgent]


SHELL = """
trap 'exit 1' TERM
n=$(cat $MAINSPRING_CHECKPOINT 2>/dev/null || echo 0)
echo from $n
while [ ! -e %s ]; do
  n=$((n + 1)); echo $n > $MAINSPRING_CHECKPOINT.new; mv $MAINSPRING_CHECKPOINT.new $MAINSPRING_CHECKPOINT
  sleep 0.02
done
"""


@pytest.mark.requirement(78)
async def test_ten_evictions_in_a_row_do_not_starve_what_makes_room(
    cluster: Cluster, queue: str, tmp_path: Path
) -> None:
    patience_s, grace_s = 0.3, 10.0
    async with cluster.client() as client, cluster.worker(slots=1, queues=[queue], name=queue):
        await client.set_queue(queue, {"patience_s": patience_s})
        task = {"kind": "shell", "argv": [SHELL % (tmp_path / "end")], "shell": True}
        victim = await submit(client, queue, "victim", task=task, preemptible=True, priority=2)
        noop = await client.create_job(
            {"name": f"urgent-{queue}", "task": {"kind": "noop"}, "queue": queue, "priority": 8, **NEVER}
        )
        for n in range(10):
            await running(client, victim, attempt=n + 1)
            urgent = await client.wait((await client.trigger(noop.name)).execution_id, timeout_s=60)
            assert urgent.state == "succeeded" and urgent.started_at is not None and urgent.queued_at is not None
            waited = (urgent.started_at - urgent.queued_at).total_seconds()
            assert waited <= patience_s + grace_s + preemption_victims.min_run_s(n), (
                "patience, grace, and the victim's due"
            )
        await running(client, victim, attempt=11)
        (tmp_path / "end").touch()
        ended = await client.wait(victim, timeout_s=60)
        assert (ended.state, ended.attempt) == ("succeeded", 11), "no retry was charged: it has none"
        assert [a.outcome for a in ended.attempts] == ["preempted"] * 10 + ["succeeded"]
        spans = [(a.ended_at - a.started_at).total_seconds() for a in ended.attempts[:10]]
        assert all(span >= preemption_victims.min_run_s(n) for n, span in enumerate(spans))
        begins = await beginnings(client, victim)
        assert begins[0] == 0 and begins == sorted(begins)
        assert begins[-1] >= 10, "each went on where the one before was"


async def beginnings(client: AsyncClient, execution: UUID) -> list[int]:
    """Where each attempt began, by its own word."""
    said = "".join(chunk.text for chunk in (await client.logs(execution)).chunks if chunk.stream == "stdout")
    return [int(word) for word in re.findall(r"from (\d+)", said)]


async def running(client: AsyncClient, execution: UUID, *, attempt: int) -> None:
    async def so() -> bool:
        found = await client.execution(execution)
        return found.state == "running" and found.attempt == attempt

    await until_async(f"attempt {attempt} runs", so, within_s=30)


# Several dispatchers, one truth ------------------------------------------------------------------------


async def begin(found: Fleet, session: UUID, count: int) -> list[Any]:
    """What the session is given, `count` in all, which then runs."""
    given: list[Any] = []
    while len(given) < count:
        poll = wire.Poll(session_id=session, free=count - len(given), wait_s=5)
        given += (await found.dispatchers[0].poll(poll, tenant=1)).executions
    return given


async def asked(database: Database) -> list[tuple[UUID, UUID]]:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT execution_id, urgent_id FROM evictions ORDER BY asked_at, execution_id")
    return [(r["execution_id"], r["urgent_id"]) for r in rows]


async def make_room(found: Fleet) -> None:
    """Every dispatcher looks at once, as often as it likes."""
    for dispatcher in found.dispatchers:
        await dispatcher._refresh()
        dispatcher._known.refresh({1: 0, 2: 0, 3: 0})
        await dispatcher._refresh()
        dispatcher._reservations.preemption = True
    await asyncio.gather(*[d._preemption.preempt() for d in found.dispatchers for _ in range(3)])


async def test_dispatchers_that_decide_at_once_evict_no_more_than_needed(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=4) as found:
        session = await found.session(slots=4, takes=["preempt"])
        low = await found.job("low", preemptible=True, priority=2)
        await found.submit(low, 4)
        await begin(found, session, 4)
        async with fresh.transaction() as connection:
            await connection.execute("UPDATE executions SET started_at = started_at - interval '1 hour'")
        high = await found.job("high", priority=8)
        urgent = await found.submit(high, 2)
        async with fresh.transaction() as connection:
            await connection.execute("UPDATE executions SET queued_at = queued_at - interval '1 hour'")
        for _ in range(3):
            await make_room(found)
        pairs = await asked(fresh)
        assert sorted(u for _, u in pairs) == sorted(urgent), "each asked once"
        assert len({v for v, _ in pairs}) == 2, "and for two there left two"


async def test_between_two_evictions_there_is_always_time(
    fresh: Database, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption_victims, "MIN_RUN_S", 5.0)
    async with fleet(fresh, dispatchers=1) as found:
        session = await found.session(slots=1, takes=["preempt"])
        low, high = await found.job("low", preemptible=True, priority=2), await found.job("high", priority=8)
        (victim,) = await found.submit(low, 1)
        for n in range(4):
            (given,) = await begin(found, session, 1)
            assert (given.execution_id, given.attempt) == (victim, n + 1)
            (urgent,) = await found.submit(high, 1)
            await virtual.advance(seconds=5 * 2**n - 0.1)
            await touch(fresh, session)
            await make_room(found)
            assert len(await asked(fresh)) == n, "it has not run long enough since it was evicted last"
            await virtual.advance(seconds=30)
            await touch(fresh, session)
            await make_room(found)
            assert (await asked(fresh))[-1] == (victim, urgent)
            await settle(found, session, given, "preempted")
            (other,) = await begin(found, session, 1)
            assert other.execution_id == urgent
            await settle(found, session, other, "succeeded")


async def touch(database: Database, session: UUID) -> None:
    """The lease is a matter of time, too, and this is not about it."""
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE sessions SET lease_expires_at = db_now() + interval '10 min' WHERE session_id = $1", session
        )


async def settle(found: Fleet, session: UUID, given: Any, outcome: Outcome) -> None:
    assert not await found.settler.settle(
        Report(session, [AttemptResult(given.execution_id, given.attempt, session, outcome)])
    )


async def test_no_other_dispatcher_gives_the_place_away(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=2) as found:
        session = await found.session(slots=1, takes=["preempt"])
        low, high = await found.job("low", preemptible=True, priority=2), await found.job("high", priority=8)
        await found.submit(low, 1)
        (given,) = await begin(found, session, 1)
        (third,) = await found.submit(low, 1)
        async with fresh.transaction() as connection:
            await connection.execute(
                "UPDATE executions SET started_at = started_at - interval '1 hour' WHERE state = 'running'"
            )
            await connection.execute("UPDATE executions SET rank = 0 WHERE execution_id = $1", third)
        (urgent,) = await found.submit(high, 1)
        async with fresh.transaction() as connection:
            await connection.execute(
                "UPDATE executions SET queued_at = queued_at - interval '1 hour' WHERE state = 'queued'"
            )
        await make_room(found)
        assert [u for _, u in await asked(fresh)] == [urgent]
        await settle(found, session, given, "preempted")
        poll = wire.Poll(session_id=session, free=1, wait_s=10)
        taken = await found.dispatchers[1].poll(poll, tenant=1)
        assert [g.execution_id for g in taken.executions] == [urgent], "the third is first in line, and waits"

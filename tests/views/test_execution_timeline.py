"""What happened to an execution, by what is stored of it."""

from __future__ import annotations

import random
import re
from datetime import timedelta

import asyncpg
import pytest

from mainspring.cli.tables.executions import execution_details
from mainspring.domain.events import LIFECYCLE
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import executions
from mainspring.store import fires
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views.execution_timeline import events_of
from mainspring.web.draw.timeline import timeline
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(fresh: Database) -> SettlingBench:
    return SettlingBench(fresh)


async def names(bench: SettlingBench, execution: object) -> list[str]:
    found = events_of(await bench.look(execution))  # type: ignore[arg-type]
    assert {event.event for event in found} <= set(LIFECYCLE)
    assert [event.at for event in found] == sorted(event.at for event in found)
    return [event.event.removeprefix("execution.") for event in found]


async def test_a_life_with_a_retry(bench: SettlingBench, virtual: VirtualClock) -> None:
    job = await bench.job(retries=RetryPolicy(max=1, base="10s", jitter="none"))
    execution = await bench.submit(job)
    assert await names(bench, execution) == ["created", "due", "queued"]
    await virtual.advance(seconds=1)
    session = await bench.session(lease_s=3600)
    await bench.claim(session)
    assert await names(bench, execution) == ["created", "due", "queued", "started"]
    await virtual.advance(seconds=1)
    await bench.end(execution, session, "failed", error="oops")
    found = events_of(await bench.look(execution))
    assert [event.event for event in found if event.event == "execution.retrying"] == ["execution.retrying"]
    assert next(event.text for event in found if event.event == "execution.retrying") == "oops"
    await virtual.advance(seconds=10)
    async with bench.database.connection() as connection:
        await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
    await virtual.advance(seconds=1)
    await bench.claim(session)
    await virtual.advance(seconds=1)
    await bench.end(execution, session, "succeeded", attempt=2)
    assert await names(bench, execution) == [
        "created",
        "due",
        "queued",
        "started",
        "retrying",
        "due",
        "queued",
        "started",
        "succeeded",
    ]


async def test_while_it_waits_for_its_next_attempt_it_has_not_started(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    """A rescue requeues it: the start of the lost attempt comes before that in the timeline, and nowhere else."""
    execution = await bench.submit(await bench.job(retries=RetryPolicy(max=3), delivery="at_least_once"))
    await virtual.advance(seconds=1)
    session = await bench.session(lease_s=3600)
    await bench.claim(session)
    started = (await bench.look(execution)).started_at
    await virtual.advance(seconds=5)
    await bench.end_session(session)
    found = await bench.look(execution)
    assert (found.state, found.started_at, found.worker, found.late_ms) == ("queued", None, None, None)
    assert found.attempts[0].started_at == started and found.attempts[0].lasted_ms == 5000
    assert await names(bench, execution) == ["created", "due", "queued", "started", "retrying", "queued"]
    await executions.cancel(bench.database, execution, tenant=TENANT, by="someone", reason="")
    found = await bench.look(execution)
    assert (found.state, found.started_at, found.duration_ms) == ("cancelled", None, None)


async def test_an_attempt_has_one_duration_wherever_it_is_shown(bench: SettlingBench, virtual: VirtualClock) -> None:
    """It is the time that the worker has measured, not the time until the result arrived."""
    execution = await bench.submit(await bench.job(retries=RetryPolicy(max=1, base="1s", jitter="none")))
    session = await bench.session(lease_s=3600)
    for attempt, outcome in ((1, "failed"), (2, "failed")):
        await virtual.advance(seconds=2)
        async with bench.database.connection() as connection:
            await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
        await bench.claim(session)
        await virtual.advance(seconds=9)
        await bench.end(execution, session, outcome, attempt=attempt, duration_ms=100 * attempt)
    found = await bench.look(execution)
    assert (found.state, found.duration_ms) == ("failed", 200)
    assert [a.lasted_ms for a in found.attempts] == [100, 200]
    letter = await dead_letter_views.get(bench.database, execution, tenant=TENANT)
    assert [a.lasted_ms for a in letter.attempts] == [100, 200]
    ran = [step.gap for step in timeline(found, virtual.now) if step.gap is not None and step.gap.kind == "running"]
    assert [gap.duration for gap in ran] == ["200 ms"]
    text = execution_details(found)
    assert "(duration 200 ms)" in text and "  100 ms" in text and "9 s" not in text
    assert re.search(r"finished +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", text), "with milliseconds"


async def test_a_lost_attempt_lasted_until_it_was_declared_lost(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution = await bench.submit(await bench.job(delivery="at_most_once", retries=RetryPolicy(max=0)))
    session = await bench.session(lease_s=3600)
    await bench.claim(session)
    await virtual.advance(seconds=30)
    await bench.end_session(session)
    found = await bench.look(execution)
    assert (found.state, found.duration_ms, found.attempts[0].lasted_ms) == ("lost", 30_000, 30_000)


async def test_what_was_cancelled_before_it_began(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution = await bench.submit(await bench.job())
    await virtual.advance(seconds=1)
    await executions.cancel(bench.database, execution, tenant=TENANT, by="someone", reason="not needed")
    assert await names(bench, execution) == ["created", "due", "queued", "cancelled"]
    last = events_of(await bench.look(execution))[-1]
    assert last.text == "cancelled by someone: not needed"


async def test_what_is_put_off_tells_nothing_before_its_time(bench: SettlingBench, virtual: VirtualClock) -> None:
    at = virtual.now + timedelta(minutes=5)
    job = await bench.job()
    later = [await bench.submitter.submit(executions.Submission(TENANT, "test", job, at=at)) for _ in range(2)]
    assert [await names(bench, execution) for execution in later] == [[], []]
    await executions.cancel(bench.database, later[0], tenant=TENANT, by="someone", reason="")
    assert await names(bench, later[0]) == ["cancelled"]
    await virtual.set(at)
    async with bench.database.connection() as connection:
        await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
    assert await names(bench, later[1]) == ["created", "due", "queued"]


@pytest.mark.parametrize("seed", range(6))
async def test_a_timeline_only_grows(bench: SettlingBench, virtual: VirtualClock, seed: int) -> None:
    """Lives at random: claimed, failed, given back, lost, put off, cancelled. What was told once stays as it was."""
    rng = random.Random(seed)
    job = await bench.job(retries=RetryPolicy(max=4, base="10s", jitter="none"), delivery="at_least_once")
    execution, told, session, attempt = await bench.submit(job), list[object](), None, 0
    for _ in range(40):
        await virtual.advance(seconds=rng.randrange(1, 15))
        found = await bench.look(execution)
        match found.state:
            case "queued":
                session = await bench.session(lease_s=86400)
                ((_, attempt),) = [(row["execution_id"], row["attempt"]) for row in await bench.claim(session)]
            case "running":
                assert session is not None
                outcome = rng.choice(["failed", "timed_out", "preempted", "lost"] * 2 + ["succeeded"])
                if outcome == "lost":
                    await bench.end_session(session)
                else:
                    await bench.end(execution, session, outcome, attempt=attempt, error=f"{outcome} it was")
            case "waiting" if rng.random() < 0.1:
                await executions.cancel(bench.database, execution, tenant=TENANT, by="someone", reason="")
            case "waiting":
                async with bench.database.connection() as connection:
                    await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
        now = list[object](events_of(await bench.look(execution)))
        assert now[: len(told)] == told and await names(bench, execution)
        told = now
    assert len(told) >= 5


async def test_what_is_told_of_can_not_be_changed(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=0))
    assert await bench.end(execution, session, "failed", error="oops")
    async with bench.database.connection() as connection:
        day = await connection.fetchval("SELECT tableoid::regclass::text FROM history")
        for table in ("history", day, "attempts"):
            with pytest.raises(asyncpg.RaiseError, match="never changed"):
                await connection.execute(f"UPDATE {table} SET error = ''")

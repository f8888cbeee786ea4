"""Pauses that end by themselves, what they leave on record, and catching up."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.job import Misfire
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.pauses import end_pauses
from mainspring.intake import jobs
from mainspring.store import pauses
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.policies import DOWN, LONG, MISFIRES, OVERLAPS
from tests.support.scheduling import add, finish_all, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio


async def job_id(database: Database, name: str) -> UUID:
    return (await refs.job_row(database, name, tenant=TENANT)).job_id


def after(**by: float) -> Any:
    return START + timedelta(**by)


async def fires_of(database: Database, name: str) -> list[tuple[float, str, str | None, int]]:
    page = await fire_views.ledger(database, name, tenant=TENANT, limit=500)
    return [((e.fire_at - START).total_seconds(), e.state, e.reason, e.fires) for e in reversed(page.items)]


async def test_a_pause_ends_by_itself_by_database_time(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "paused", overlap="allow")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="maintenance", until=after(seconds=150))
    found = await job_views.get(fresh, "paused", tenant=TENANT)
    assert (found.state, found.pause_reason, found.paused_until) == ("paused", "maintenance", after(seconds=150))
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=149)
    assert await end_pauses(fresh) == 0, "not before its time"
    async with fresh.connection() as connection:
        assert await pauses.next_pause_over_s(connection) == 1
    await virtual.advance(seconds=1)
    assert await end_pauses(fresh) == 1
    assert await end_pauses(fresh) == 0
    await step(scheduler)
    await virtual.advance(seconds=30)
    await step(scheduler)
    assert await fires_of(fresh, "paused") == [(120, "skipped", "paused", 2), (180, "queued", None, 1)]
    found = await job_views.get(fresh, "paused", tenant=TENANT)
    assert (found.state, found.pause_reason, found.paused_at, found.paused_until) == ("active", None, None, None)


async def test_a_pause_that_was_prolonged_or_ended_is_left_alone(fresh: Database, virtual: VirtualClock) -> None:
    """Between the look for pauses that are over and the resuming, a person may have said something else."""
    await add(fresh, "paused")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="first", until=after(seconds=10))
    await virtual.advance(seconds=10)
    await jobs.pause(fresh, paused, tenant=TENANT, reason="", until=after(hours=1))
    assert not await jobs.resume(fresh, paused, tenant=TENANT, if_over=True)
    found = await job_views.get(fresh, "paused", tenant=TENANT)
    assert (found.state, found.pause_reason, found.paused_until) == ("paused", "first", after(hours=1))
    assert found.paused_at == START, "it is the same pause"
    await jobs.pause(fresh, paused, tenant=TENANT, reason="for good")
    await virtual.advance(hours=2)
    assert await end_pauses(fresh) == 0, "the last word was: until someone resumes it"


async def test_a_pause_can_not_end_in_the_past(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "paused")
    with pytest.raises(Invalid) as refused:
        await jobs.pause(fresh, await job_id(fresh, "paused"), tenant=TENANT, reason="", until=START)
    assert refused.value.problems[0].pointer == "/until"
    assert (await job_views.get(fresh, "paused", tenant=TENANT)).state == "active", "nothing was written"


async def test_many_who_resume_at_once_record_the_pause_once(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "paused", overlap="allow")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="", until=after(seconds=100))
    await virtual.advance(seconds=130)
    await asyncio.gather(
        *[end_pauses(fresh) for _ in range(3)],
        *[jobs.resume(fresh, paused, tenant=TENANT, caught_up=True) for _ in range(3)],
    )
    recorded = await fires_of(fresh, "paused")
    assert sum(fires for *_, fires in recorded) == 2 and recorded[-1][0] == 120


@pytest.mark.parametrize("edit", ["unpause", "reschedule", "delete"])
async def test_no_edit_of_a_paused_job_leaves_a_hole(fresh: Database, virtual: VirtualClock, edit: str) -> None:
    await add(fresh, "paused", overlap="allow")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="")
    await virtual.advance(seconds=150)
    gap = (120, "skipped", "paused", 2)
    match edit:
        case "unpause":
            await jobs.patch(fresh, paused, {"paused": False}, tenant=TENANT, by="test")
        case "reschedule":
            await jobs.patch(fresh, paused, {"schedule": {"every": 30}}, tenant=TENANT, by="test")
            assert (await job_views.get(fresh, "paused", tenant=TENANT)).state == "paused"
        case "delete":
            await jobs.delete(fresh, paused, tenant=TENANT, by="test")
    assert await fires_of(fresh, str(paused)) == [gap]
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=45)
    await step(scheduler)
    wanted: dict[str, list[Any]] = {"unpause": [gap, (180, "queued", None, 1)], "reschedule": [gap], "delete": [gap]}
    assert await fires_of(fresh, str(paused)) == wanted[edit]
    if edit == "reschedule":
        await jobs.resume(fresh, paused, tenant=TENANT)
        assert await fires_of(fresh, str(paused)) == [gap, (180, "skipped", "paused", 1)]


async def test_an_edit_of_a_paused_job_keeps_the_pause_and_its_end(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "paused")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="why", until=after(hours=1))
    await jobs.patch(fresh, paused, {"description": "better"}, tenant=TENANT, by="test")
    found = await job_views.get(fresh, "paused", tenant=TENANT)
    assert (found.state, found.pause_reason, found.paused_until) == ("paused", "why", after(hours=1))


# Catching up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("misfire", "overlap"), list(product(MISFIRES, OVERLAPS)))
async def test_catching_up_is_as_after_an_outage(
    fresh: Database, virtual: VirtualClock, misfire: Any, overlap: Any
) -> None:
    """Every misfire policy with every overlap policy; without catch-up the same job runs nothing."""
    for name in ("caught-up", "plain"):
        await add(fresh, name, misfire=Misfire(policy=misfire), overlap=overlap)
        await jobs.pause(fresh, await job_id(fresh, name), tenant=TENANT, reason="grid")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=200)
    await step(scheduler)
    await jobs.resume(fresh, await job_id(fresh, "caught-up"), tenant=TENANT, caught_up=True)
    await jobs.resume(fresh, await job_id(fresh, "plain"), tenant=TENANT)
    await step(scheduler)
    assert await ledger(fresh, "caught-up") == DOWN[misfire, overlap]
    assert await fires_of(fresh, "plain") == [(180, "skipped", "paused", 3)]
    caught_up = await job_id(fresh, "caught-up")
    page = await fire_views.ledger(fresh, "caught-up", tenant=TENANT)
    for entry in page.items:
        ms = round(entry.fire_at.timestamp() * 1000)
        assert entry.execution_id == execution_id(caught_up, ms, fire_key(ms)), "the id the fire would have had"
    await finish_all(fresh)
    await virtual.advance(seconds=40)
    await step(scheduler)
    assert await fires_of(fresh, "plain") == [(180, "skipped", "paused", 3), (240, "queued", None, 1)]


# While the execution of 60 still runs, the job is paused from 70 to 200: instants 120 and 180.
RUNNING: dict[str, list[tuple[float, str, str | None]]] = {
    "skip": [(120, "skipped", "overlap"), (180, "skipped", "overlap")],
    "queue_one": [(120, "blocked", None), (180, "skipped", "overlap")],
    "queue_all": [(120, "blocked", None), (180, "blocked", None)],
    "cancel_running": [(120, "cancelled", "overlap"), (180, "blocked", None)],
    "allow": [(120, "queued", None), (180, "queued", None)],
}


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_catching_up_while_an_execution_runs(fresh: Database, virtual: VirtualClock, overlap: Any) -> None:
    await add(fresh, "slow", misfire=Misfire(policy="all"), overlap=overlap)
    slow = await job_id(fresh, "slow")
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session = await bench.session(LONG)
    await virtual.advance(seconds=60)
    await step(scheduler)
    (running,) = await bench.claim(session)
    await virtual.advance(seconds=10)
    await jobs.pause(fresh, slow, tenant=TENANT, reason="")
    await virtual.advance(seconds=130)
    await jobs.resume(fresh, slow, tenant=TENANT, caught_up=True)
    assert await ledger(fresh, "slow") == [(60, "running", None), *RUNNING[overlap]]
    asked = (await bench.look(running["execution_id"])).cancelling
    assert asked == (overlap == "cancel_running")
    await bench.end(running["execution_id"], session, "succeeded")
    assert "queued" in [state for _, state, _ in await ledger(fresh, "slow")] or overlap == "skip"


@pytest.mark.parametrize(("window", "most", "expected"), [("100s", 100, [120, 180]), ("24h", 1, [180])])
async def test_catching_up_keeps_window_and_number(
    fresh: Database, virtual: VirtualClock, window: str, most: int, expected: list[int]
) -> None:
    await add(fresh, "paused", misfire=Misfire(policy="all", window=window, max=most), overlap="allow")
    paused = await job_id(fresh, "paused")
    await jobs.pause(fresh, paused, tenant=TENANT, reason="")
    await virtual.advance(seconds=200)
    await jobs.resume(fresh, paused, tenant=TENANT, caught_up=True)
    assert [at for at, state, _ in await ledger(fresh, "paused") if state == "queued"] == expected
    assert sum(fires for *_, fires in await fires_of(fresh, "paused")) == 3


async def test_a_long_pause_is_recorded_in_ranges(fresh: Database, virtual: VirtualClock) -> None:
    every = ScheduleSpec(every=1, aligned=True)
    await add(fresh, "fast", schedule=every, misfire=Misfire(policy="all", max=5), overlap="allow")
    fast = await job_id(fresh, "fast")
    await jobs.pause(fresh, fast, tenant=TENANT, reason="")
    await virtual.advance(days=30)
    await jobs.resume(fresh, fast, tenant=TENANT, caught_up=True)
    recorded = await fires_of(fresh, "fast")
    assert len(recorded) == 101
    assert sum(fires for *_, fires in recorded) == 30 * 86_400
    assert [state for _, state, _, _ in recorded].count("queued") == 5


@pytest.mark.parametrize(
    ("caught_up", "late_s", "expected"),
    [
        (False, 30, (90, "skipped", "paused")),
        (True, 30, (90, "waiting", None)),
        (True, 90_000, (90, "skipped", "misfire")),
    ],
)
async def test_a_one_time_job_is_caught_up_with_too(
    fresh: Database, virtual: VirtualClock, caught_up: bool, late_s: int, expected: Any
) -> None:
    await add(fresh, "once", schedule=ScheduleSpec(at=after(seconds=90).isoformat()))
    once = await job_id(fresh, "once")
    await jobs.pause(fresh, once, tenant=TENANT, reason="")
    await virtual.advance(seconds=90 + late_s)
    await jobs.resume(fresh, once, tenant=TENANT, caught_up=caught_up)
    assert await ledger(fresh, "once") == [expected]
    if expected[1] == "waiting":
        await scheduler_on(fresh)
        assert await ledger(fresh, "once") == [(90, "queued", None)]

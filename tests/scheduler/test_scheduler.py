"""Deciding fires against a real database whose clock the test moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring.domain.job import Misfire
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.scheduling import TENANT, add, finish_all, ledger, scheduler_on, sees_the_time, step
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio


async def test_each_instant_becomes_one_execution(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "minutely")
    scheduler = await scheduler_on(fresh)
    for _ in range(5):
        await virtual.advance(seconds=30)
        await step(scheduler)
        await step(scheduler)
        await finish_all(fresh)
    assert await ledger(fresh, "minutely") == [(60, "succeeded", None), (120, "succeeded", None)]


async def test_never_early(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "minutely")
    scheduler = await scheduler_on(fresh)
    await virtual.set(START + timedelta(seconds=59, milliseconds=999))
    await step(scheduler)
    assert await ledger(fresh, "minutely") == []
    await virtual.set(START + timedelta(seconds=60))
    await step(scheduler)
    assert await ledger(fresh, "minutely") == [(60, "queued", None)]


async def test_an_old_owner_changes_nothing(fresh: Database, virtual: VirtualClock) -> None:
    """A scheduler that was stopped while another took over wakes up with a stale wheel and loses its shards."""
    await add(fresh, "minutely", overlap="allow")
    old = await scheduler_on(fresh)
    await virtual.advance(seconds=40)
    new = await scheduler_on(fresh)
    assert new.shards == list(range(64))
    await virtual.advance(seconds=20)
    sees_the_time(old, virtual.now)
    await old.decide()
    assert await ledger(fresh, "minutely") == [], "the old owner's epoch has moved"
    await step(new)
    await step(old)
    assert old.shards == []
    assert await ledger(fresh, "minutely") == [(60, "queued", None)]


async def test_an_owner_of_an_older_epoch_changes_nothing_though_the_shards_are_its_own_again(
    fresh: Database, virtual: VirtualClock
) -> None:
    """Another had them in between, and what that one decided is not on this one's wheel."""
    await add(fresh, "minutely", overlap="allow")
    scheduler = await scheduler_on(fresh)
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET epoch = epoch + 2")
    await virtual.advance(seconds=61)
    sees_the_time(scheduler, virtual.now)
    await scheduler.decide()
    assert await ledger(fresh, "minutely") == []
    await step(scheduler)
    assert scheduler.shards == list(range(64)), "its beat has told it the new epoch"
    assert await ledger(fresh, "minutely") == [(60, "queued", None)]


@pytest.mark.requirement(32)
async def test_two_owners_racing_make_one_execution(fresh: Database, virtual: VirtualClock) -> None:
    import asyncio

    await add(fresh, "minutely", overlap="allow")
    first, second = await scheduler_on(fresh), Scheduler(fresh, SilentBus(), lease_s=30)
    await virtual.advance(seconds=60)
    await asyncio.gather(step(first), step(second), first.decide(), second.lease())
    await step(second)
    assert await ledger(fresh, "minutely") == [(60, "queued", None)]


@pytest.mark.requirement(11)
async def test_an_edit_reaches_the_wheel_and_the_old_time_does_not_fire(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "edited", overlap="allow")
    scheduler = await scheduler_on(fresh)
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    await virtual.advance(seconds=10)
    await jobs.patch(fresh, row.job_id, {"schedule": {"every": 25, "aligned": True}}, tenant=TENANT, by="test")
    for _ in range(7):
        await virtual.advance(seconds=10)
        await step(scheduler)
    # 12:00:00 is a multiple of 25 s, so the new fires are at 25, 50 and 75; 60 was the old one.
    assert await ledger(fresh, "edited") == [(25, "queued", None), (50, "queued", None), (75, "queued", None)]


@pytest.mark.requirement(10)
async def test_a_paused_job_does_not_fire_and_resume_makes_nothing_up(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "paused", overlap="allow")
    scheduler = await scheduler_on(fresh)
    row = await refs.job_row(fresh, "paused", tenant=TENANT)
    await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="maintenance")
    await virtual.advance(seconds=150)
    await step(scheduler)
    assert await ledger(fresh, "paused") == []
    await jobs.resume(fresh, row.job_id, tenant=TENANT)
    await step(scheduler)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(fresh, "paused") == [(120, "skipped", "paused"), (180, "queued", None)]


@pytest.mark.requirement(12)
async def test_a_deleted_job_never_fires_and_its_history_stays(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "deleted")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    row = await refs.job_row(fresh, "deleted", tenant=TENANT)
    await jobs.delete(fresh, row.job_id, tenant=TENANT, by="test")
    await virtual.advance(seconds=300)
    await step(scheduler)
    assert await ledger(fresh, str(row.job_id)) == [(60, "cancelled", "job deleted by test")]
    assert (await job_views.get(fresh, str(row.job_id), tenant=TENANT)).state == "deleted"


@pytest.mark.requirement(15)
async def test_a_one_second_job_that_is_behind_by_sixty_ticks_runs_once(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "secondly", schedule=ScheduleSpec(every=1), misfire=Misfire(policy="latest"))
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    found = await ledger(fresh, "secondly")
    assert [at for at, _, _ in found] == list(range(1, 61)), "every tick is on record"
    assert found[-1] == (60, "queued", None) and {entry[1:] for entry in found[:-1]} == {("skipped", "misfire")}
    await finish_all(fresh)
    await virtual.advance(seconds=1)
    await step(scheduler)
    assert (await ledger(fresh, "secondly"))[-1] == (61, "queued", None), "on time again"


@pytest.mark.requirement(14)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", [(60, "skipped"), (120, "skipped"), (180, "queued")]),
        ("all", [(60, "queued"), (120, "queued"), (180, "queued")]),
        ("skip", [(60, "skipped"), (120, "skipped"), (180, "skipped")]),
    ],
)
async def test_fires_missed_while_nobody_decided_follow_the_policy(
    fresh: Database, virtual: VirtualClock, policy: Any, expected: list[tuple[int, str]]
) -> None:
    await add(fresh, "missed", misfire=Misfire(policy=policy), overlap="allow")
    await virtual.advance(seconds=200)
    scheduler = await scheduler_on(fresh)
    assert [(at, state) for at, state, _ in await ledger(fresh, "missed")] == expected
    await virtual.advance(seconds=40)
    await step(scheduler)
    assert (await ledger(fresh, "missed"))[-1] == (240, "queued", None), "on time again"


async def test_very_many_missed_fires_are_one_row_and_the_newest_hundred(
    fresh: Database, virtual: VirtualClock
) -> None:
    await add(fresh, "secondly", schedule=ScheduleSpec(every=1))
    await virtual.advance(seconds=3600)
    await scheduler_on(fresh)
    page = await execution_views.list_executions(fresh, tenant=TENANT, job="secondly", limit=500)
    assert len(page.items) == 101
    assert sum(e.fires for e in page.items) == 3600, "every instant is accounted for"
    assert [e.state for e in page.items].count("queued") == 1


async def test_overlap_skips_while_the_last_one_lives(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "slow")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert await ledger(fresh, "slow") == [(60, "queued", None), (120, "skipped", "overlap")]


@pytest.mark.requirement(5)
async def test_nothing_fires_outside_start_and_end(fresh: Database, virtual: VirtualClock) -> None:
    window = ScheduleSpec(
        every=60,
        aligned=True,
        start_at=(START + timedelta(seconds=120)).isoformat(),
        end_at=(START + timedelta(seconds=180)).isoformat(),
    )
    await add(fresh, "window", schedule=window, overlap="allow")
    scheduler = await scheduler_on(fresh)
    for _ in range(6):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert [at for at, _, _ in await ledger(fresh, "window")] == [120, 180]
    assert (await job_views.get(fresh, "window", tenant=TENANT)).next_fire_at is None


@pytest.mark.requirement(2)
async def test_a_one_time_job_fires_once_and_is_finished(fresh: Database, virtual: VirtualClock) -> None:
    at = (START + timedelta(seconds=90)).isoformat()
    await add(fresh, "once", schedule=ScheduleSpec(at=at))
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=89)
    await step(scheduler)
    assert await ledger(fresh, "once") == [(90, "waiting", None)]
    await virtual.advance(seconds=1)
    await step(scheduler)
    assert await ledger(fresh, "once") == [(90, "queued", None)]
    await finish_all(fresh)
    await virtual.advance(days=1)
    await step(scheduler)
    assert await ledger(fresh, "once") == [(90, "succeeded", None)]
    assert (await job_views.get(fresh, "once", tenant=TENANT)).state == "finished"


async def test_a_paused_one_time_job_waits_and_is_recorded_as_skipped(fresh: Database, virtual: VirtualClock) -> None:
    at = (START + timedelta(seconds=90)).isoformat()
    await add(fresh, "held", schedule=ScheduleSpec(at=at))
    scheduler = await scheduler_on(fresh)
    row = await refs.job_row(fresh, "held", tenant=TENANT)
    await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="")
    await virtual.advance(seconds=120)
    await step(scheduler)
    assert await ledger(fresh, "held") == [(90, "waiting", None)]
    await jobs.resume(fresh, row.job_id, tenant=TENANT)
    assert await ledger(fresh, "held") == [(90, "skipped", "paused")]


async def test_a_handover_leaves_no_gap(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "minutely", overlap="allow")
    first = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(first)
    await first.drain()
    second = await scheduler_on(fresh)
    assert second.shards == list(range(64)), "released shards are free at once"
    await virtual.advance(seconds=60)
    await step(second)
    assert [at for at, _, _ in await ledger(fresh, "minutely")] == [60, 120]

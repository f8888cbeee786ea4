"""What a tick does beside deciding: it forgets schedules nobody wants, and survives an id that is there already."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import fires as fire_views
from mainspring.views import refs
from tests.support.scheduling import TENANT, add, ledger, scheduler_on, step

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


async def test_a_schedule_whose_last_job_is_gone_leaves_the_wheel(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "gone")
    await add(fresh, "also-gone")
    scheduler = await scheduler_on(fresh)
    assert len(scheduler._wheel) == 1
    for name in ("gone", "also-gone"):
        row = await refs.job_row(fresh, name, tenant=TENANT)
        await jobs.delete(fresh, row.job_id, tenant=TENANT, by="test")
        assert len(scheduler._wheel) == 1
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert len(scheduler._wheel) == 0
    await add(fresh, "new")
    await step(scheduler)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(fresh, "new") == [(120, "queued", None)], "a new job brings its schedule back"


async def test_a_schedule_with_a_later_start_stays_on_the_wheel(fresh: Database, virtual: VirtualClock) -> None:
    from mainspring.domain.schedule.schedule import ScheduleSpec

    start = START.replace(minute=2).isoformat()
    await add(fresh, "later", schedule=ScheduleSpec(every=60, aligned=True, start_at=start))
    scheduler = await scheduler_on(fresh)
    for _ in range(3):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert [entry[0] for entry in await ledger(fresh, "later")] == [120, 180]


async def test_an_execution_that_is_there_already_does_not_stop_the_tick(
    fresh: Database, virtual: VirtualClock
) -> None:
    """The second net: should a watermark ever fall back, the id is known and the rest is decided."""
    await add(fresh, "known", overlap="allow")
    await add(fresh, "other", overlap="allow")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    await scheduler.drain()  # a peer would take half of the shards
    other = await refs.job_row(fresh, "other", tenant=TENANT)
    async with fresh.connection() as connection:
        await connection.execute("DELETE FROM executions WHERE job_id = $1", other.job_id)
        await connection.execute("UPDATE shards SET watermark = $1", START)
    await step(await scheduler_on(fresh))
    assert await ledger(fresh, "known") == [(60, "queued", None)]
    assert await ledger(fresh, "other") == [(60, "queued", None)]


async def test_a_range_of_missed_fires_counts_what_each_job_wanted(fresh: Database, virtual: VirtualClock) -> None:
    """More than a hundred missed instants are one row per job; a window that opens or closes within them counts."""
    from mainspring.domain.schedule.schedule import ScheduleSpec

    def window(start_at: str | None = None, end_at: str | None = None) -> ScheduleSpec:
        return ScheduleSpec(every=60, aligned=True, start_at=start_at, end_at=end_at)

    at_90 = (START + timedelta(minutes=90)).isoformat()
    await add(fresh, "always", schedule=window(), overlap="allow")
    await add(fresh, "late", schedule=window(start_at=at_90), overlap="allow")
    await add(fresh, "early", schedule=window(end_at=at_90), overlap="allow")
    await virtual.advance(seconds=100 * 60)
    await add(fresh, "new", schedule=window(), overlap="allow")
    await virtual.advance(seconds=150 * 60)
    await scheduler_on(fresh)
    counted = {}
    for name in ("always", "late", "early", "new"):
        entries = (await fire_views.ledger(fresh, name, tenant=TENANT, limit=500)).items
        counted[name] = [(entry.fires, (entry.fire_at - START) // MINUTE) for entry in entries if entry.fires > 1]
        assert sum(entry.fires for entry in entries) == {"always": 250, "late": 161, "early": 90, "new": 150}[name]
    assert counted == {"always": [(150, 150)], "late": [(61, 150)], "early": [(90, 90)], "new": [(50, 150)]}

"""How crowded a minute is, from schedules alone: the same numbers that firing gives."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from mainspring.clock import millis
from mainspring.domain.schedule.recurrence import Interval
from mainspring.domain.schedule.schedule import ScheduleSpec, compile_key, resolve
from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import fire_density, refs
from mainspring.views.fire_density import ScheduleLoad, ScheduleLoads, quieter_minute
from tests.support.scheduling import TENANT, add, scheduler_on, step

NOW_MS = millis(START)
MINUTE_MS = 60_000


def cron(text: str, jobs: int) -> ScheduleLoad:
    key = resolve(ScheduleSpec(cron=text), now_ms=NOW_MS).key
    assert key is not None
    return ScheduleLoad(compile_key(key), jobs)


async def test_minutes_hold_what_firing_then_gives(fresh: Database, virtual: VirtualClock) -> None:
    begin, end = START + timedelta(minutes=3), START + timedelta(minutes=6)
    for name, schedule in {
        "cron": ScheduleSpec(cron="*/2 * * * *"),
        "cron-too": ScheduleSpec(cron="*/2 * * * *", timezone="UTC"),
        "seconds": ScheduleSpec(cron="*/20 * * * * *"),
        "interval": ScheduleSpec(every=25, aligned=True),
        "window": ScheduleSpec(every=30, aligned=True, start_at=begin.isoformat(), end_at=end.isoformat()),
        "kathmandu": ScheduleSpec(cron="50 17 * * *", timezone="Asia/Kathmandu"),
    }.items():
        await add(fresh, name, schedule=schedule, overlap="allow")
    await add(fresh, "paused", schedule=ScheduleSpec(every=1), paused=True)
    await add(fresh, "once", schedule=ScheduleSpec(at=(START + timedelta(minutes=4)).isoformat()))
    found = await fire_density.tenant_loads(fresh, tenant=TENANT)
    assert found.complete
    assert (await fire_density.tenant_loads(fresh, tenant=TENANT + 1)).loads == []
    expected = [found.due_in_minute_of(NOW_MS + n * MINUTE_MS) for n in range(10)]

    scheduler = await scheduler_on(fresh)
    for _ in range(10):
        await virtual.advance(minutes=1)
        await step(scheduler)
    page = await execution_views.list_executions(fresh, tenant=TENANT, limit=500)
    fired = Counter((e.fire_at - START) // timedelta(minutes=1) for e in page.items if e.job != "once")
    # Late fires are recorded as skipped, each by itself. START itself had passed when the jobs were made.
    assert [fired[n] for n in range(1, 10)] == expected[1:]
    assert expected[5] > expected[7] > 0


async def test_with_very_many_schedules_the_most_shared_are_counted(
    fresh: Database, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire_density, "MAX_SCHEDULES", 2)
    for n in range(3):
        for m in range(n + 1):
            await add(fresh, f"job-{n}-{m}", schedule=ScheduleSpec(cron=f"{n} * * * *"))
    found = await fire_density.tenant_loads(fresh, tenant=TENANT)
    assert not found.complete
    hour_ms = NOW_MS - NOW_MS % fire_density.HOUR_MS
    assert [found.due_in_minute_of(hour_ms + n * MINUTE_MS) for n in range(3)] == [0, 2, 3]
    await jobs.delete(fresh, (await refs.job_row(fresh, "job-0-0", tenant=TENANT)).job_id, tenant=TENANT, by="x")
    assert (await fire_density.tenant_loads(fresh, tenant=TENANT)).complete


async def test_of_very_many_jobs_a_part_is_read_and_taken_for_all(
    fresh: Database, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are drawn at random: with 400 of them, a fifth is far from half and from a twentieth."""
    await add(fresh, "many", schedule=ScheduleSpec(cron="0 * * * *"))
    async with fresh.transaction() as connection:
        await connection.execute(
            "INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, queue,"
            " priority, overlap, misfire, misfire_s, misfire_most, created_at, updated_at)"
            " SELECT gen_random_uuid(), tenant_id, name || n, 1, shard, 1, schedule_id, active_from, queue, priority,"
            " overlap, misfire, misfire_s, misfire_most, created_at, updated_at FROM jobs, generate_series(1, 15000) n"
        )
        await connection.execute("ANALYZE jobs")
    hour_ms = NOW_MS - NOW_MS % fire_density.HOUR_MS
    whole = await fire_density.tenant_loads(fresh, tenant=TENANT)
    assert (whole.complete, whole.due_in_minute_of(hour_ms)) == (True, 15001)
    monkeypatch.setattr(fire_density, "MAX_JOBS", 3000)
    part = await fire_density.tenant_loads(fresh, tenant=TENANT)
    assert not part.complete
    assert 7500 < part.due_in_minute_of(hour_ms) < 30000


def test_a_quieter_minute_is_the_nearest_of_the_quietest() -> None:
    fires = [NOW_MS + day * 86_400_000 for day in range(5)]
    busy = ScheduleLoads([cron("0 * * * *", 900), cron("1-3 * * * *", 50), cron("* * * * *", 7)])
    assert busy.most_at(fires) == 907
    assert quieter_minute(busy, fires, 0) == (4, 7)
    # In a zone of half hours the same instants are at another minute of the wall clock.
    assert quieter_minute(busy, fires, 30) == (29, 7)


def test_there_is_no_proposal_without_need_or_without_gain() -> None:
    fires = [NOW_MS]
    assert quieter_minute(ScheduleLoads([cron("0 * * * *", 59)]), fires, 0) is None
    assert quieter_minute(ScheduleLoads([ScheduleLoad(Interval(1000, 0), 10)]), fires, 0) is None, (
        "it is the same everywhere"
    )
    assert quieter_minute(ScheduleLoads([]), fires, 0) is None

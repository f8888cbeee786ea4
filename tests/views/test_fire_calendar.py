"""Fires by the hour: as many as firing gives, an estimate where there are too many to count, and how to spread them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from mainspring.clock import millis
from mainspring.domain.schedule.schedule import ScheduleSpec, compile_key, resolve
from mainspring.store import charts
from mainspring.store.db import Database
from mainspring.store.retention import make_partitions
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import fire_calendar, fire_density
from mainspring.views.fire_density import HOUR_MS, ScheduleLoad, ScheduleLoads
from tests.support.scheduling import TENANT, add, scheduler_on, step

BEGIN_MS = millis(START) // HOUR_MS * HOUR_MS


def load(text: str, jobs: int, schedule_id: int = 0) -> ScheduleLoad:
    key = resolve(ScheduleSpec(cron=text), now_ms=BEGIN_MS).key
    assert key is not None
    return ScheduleLoad(compile_key(key), jobs, schedule_id)


def test_hours_ahead_hold_every_fire_once() -> None:
    crowd = ScheduleLoads([load("0 * * * *", 3), load("*/10 * * * *", 2), load("30 2 * * *", 50)])
    plan = fire_calendar.planned(crowd, BEGIN_MS, 48)
    two = [n for n in range(48) if (BEGIN_MS // HOUR_MS + n) % 24 == 2]
    assert [plan[n] for n in range(48)] == [3 + 12 + (50 if n in two else 0) for n in range(48)]


def test_of_very_many_schedules_a_part_stands_for_all() -> None:
    crowd = ScheduleLoads([load("0 0 * * *", 5000), *(load(f"{n % 60} {n % 24} * * *", 1) for n in range(5000))])
    assert not fire_calendar.is_counted(crowd)
    plan = fire_calendar.planned(crowd, BEGIN_MS, 24)
    assert sum(plan) == pytest.approx(10_000, rel=0.01)
    assert plan == fire_calendar.planned(crowd, BEGIN_MS, 24), "the picture keeps still"
    midnight = next(n for n in range(24) if (BEGIN_MS // HOUR_MS + n) % 24 == 0)
    assert plan[midnight] >= 5000 and max(n for k, n in enumerate(plan) if k != midnight) < 700


async def test_the_past_is_what_fired(fresh: Database, virtual: VirtualClock) -> None:
    """Fires that nobody was there for end as skipped, in history, each by itself."""
    await add(fresh, "often", schedule=ScheduleSpec(cron="*/20 * * * *"))
    async with fresh.connection() as connection:
        await make_partitions(connection, days=1)
    scheduler = await scheduler_on(fresh)
    await virtual.advance(hours=2)
    await step(scheduler)
    found = await fire_calendar.past_day(fresh, START.date(), tenant=TENANT)
    listed = await execution_views.list_executions(fresh, tenant=TENANT, limit=500)
    ended = Counter(millis(e.fire_at) // HOUR_MS * HOUR_MS for e in listed.items if e.finished_at is not None)
    assert {hour: past.fires for hour, past in found.items()} == ended and len(ended) >= 2
    assert all(past.exact and past.failed == 0 for past in found.values())
    assert await fire_calendar.past_day(fresh, START.date(), tenant=TENANT + 1) == {}
    assert await fire_calendar.past_day(fresh, (START - timedelta(days=400)).date(), tenant=TENANT) == {}


async def test_a_large_day_is_sampled_and_scaled(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def large(*_: object, **__: object) -> dict[object, int]:
        return {START.date(): fire_calendar.SAMPLE_PAGES * 4}

    asked: list[float] = []

    async def some(*_: object, percent: float, **__: object) -> list[tuple[object, int, int]]:
        asked.append(percent)
        return [(START, 100, 3)]

    monkeypatch.setattr(charts, "history_pages", large)
    monkeypatch.setattr(charts, "fires_by_hour", some)
    found = await fire_calendar.past_day(fresh, START.date(), tenant=TENANT)
    assert asked == [25.0]
    assert found == {millis(START): fire_calendar.PastHour(400, 12, False)}


async def test_a_crowded_minute_is_spread_by_those_that_crowd_it(fresh: Database, virtual: VirtualClock) -> None:
    for n in range(3):
        await add(fresh, f"hourly-{n}", schedule=ScheduleSpec(cron="0 * * * *"))
    await add(fresh, "spread", schedule=ScheduleSpec(cron="0 3 * * *", jitter="10m"))
    known = {found.jobs: found for found in (await fire_density.tenant_loads(fresh, tenant=TENANT)).loads}
    # As if there were hundreds of them: the proposal must name real jobs, and none that is spread already.
    crowd = ScheduleLoads(
        [
            ScheduleLoad(known[3].schedule, 300, known[3].schedule_id),
            ScheduleLoad(known[1].schedule, 90, known[1].schedule_id),
        ]
    )
    three = next(ms for ms in range(BEGIN_MS, BEGIN_MS + 24 * HOUR_MS, HOUR_MS) if ms // HOUR_MS % 24 == 3)
    found = await fire_calendar.proposals(fresh, [fire_calendar.most_crowded(crowd, three)], tenant=TENANT)
    assert [(p.due, p.jobs, p.jitter_min, p.shift_min) for p in found] == [(390, 300, 15, None)]
    assert found[0].then == 90 + 300 // 15
    assert {name for _, name in found[0].examples} == {"hourly-0", "hourly-1", "hourly-2"}
    named = await fire_calendar.examples(fresh, fire_calendar.most_crowded(crowd, three), tenant=TENANT)
    assert [(due, len(jobs)) for _, due, jobs in named] == [(300, 3), (90, 1)]
    assert (
        await fire_calendar.proposals(
            fresh, [fire_calendar.most_crowded(ScheduleLoads([load("0 * * * *", 30)]), three)], tenant=TENANT
        )
        == []
    )

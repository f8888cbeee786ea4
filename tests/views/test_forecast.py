"""The forecast: exact over a change of the clocks, an estimate beyond its caps, crowded minutes of the whole tenant."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainspring.clock import instant, millis
from mainspring.domain.schedule.schedule import ScheduleSpec, compile_key, resolve
from mainspring.views import fire_calendar
from mainspring.views.fire_density import HOUR_MS, ScheduleLoad, ScheduleLoads
from mainspring.views.forecast import Durations, crowded_minutes, plan

SPRING_MS = millis(datetime(2026, 3, 28, 23, tzinfo=UTC))
"""Midnight in Berlin at the beginning of the day of 23 hours: 02:00 to 03:00 does not exist."""
AUTUMN_MS = millis(datetime(2026, 10, 24, 22, tzinfo=UTC))
"""Midnight in Berlin at the beginning of the day of 25 hours: 02:00 to 03:00 comes twice."""


def load(cron: str, jobs: int, queue: str = "a", schedule_id: int = 0) -> ScheduleLoad:
    key = resolve(ScheduleSpec(cron=cron, timezone="Europe/Berlin"), now_ms=SPRING_MS).key
    assert key is not None
    return ScheduleLoad(compile_key(key), jobs, schedule_id, queue)


def walked(loads: ScheduleLoads, begin_ms: int, hours: int) -> list[int]:
    """Fires by hour, counted one by one."""
    due = [0] * hours
    for one in loads.loads:
        fire = one.schedule.next_after(begin_ms - 1)
        while fire is not None and fire < begin_ms + hours * HOUR_MS:
            due[(fire - begin_ms) // HOUR_MS] += one.jobs
            fire = one.schedule.next_after(fire)
    return due


@pytest.mark.parametrize(("begin_ms", "hours"), [(SPRING_MS, 23), (AUTUMN_MS, 25)])
def test_the_day_of_a_change_of_clocks_is_counted_exactly(begin_ms: int, hours: int) -> None:
    loads = ScheduleLoads(
        [load("0 * * * *", 7), load("*/10 2 * * *", 3, "b"), load("30 2 * * *", 100, "b"), load("0 0 * * *", 11)]
    )
    found = plan(loads, Durations(), begin_ms, hours)
    assert found.fires() == walked(loads, begin_ms, hours)
    assert sum(found.queues["a"].fires) == 7 * hours + 11, "an hourly job fires once in each hour of the day"
    assert sum(found.queues["b"].fires) >= 100, "a daily job fires on that day too"
    assert found.left_out == 0


def test_slots_follow_the_durations_of_the_schedule_and_of_the_queue() -> None:
    loads = ScheduleLoads([load("0 * * * *", 6, "a", 1), load("0 * * * *", 4, "a", 2), load("0 * * * *", 5, "b", 3)])
    durations = Durations({(1, "a"): HOUR_MS / 2}, {"a": HOUR_MS * 2})
    found = plan(loads, durations, SPRING_MS, 24)
    # Six at half an hour and four at two hours, also in the first hour, which executions of earlier fires share.
    assert found.queues["a"].slots == pytest.approx([6 / 2 + 4 * 2] * 24)
    assert found.queues["b"].slots == [0.0] * 24, "without durations, nothing is known"


def test_of_very_many_schedules_a_sample_stands_for_all() -> None:
    loads = ScheduleLoads([load(f"{n % 60} {n % 24} * * *", 2, "ab"[n % 2], n) for n in range(3000)])
    found = plan(loads, Durations(), SPRING_MS + 24 * HOUR_MS, 24)
    assert not fire_calendar.is_counted(loads)
    assert sum(found.fires()) == pytest.approx(6000, rel=0.01)


def test_a_minute_is_crowded_by_the_jobs_of_all_queues() -> None:
    shared = load("15 3 * * *", 70, "a", 1)
    loads = ScheduleLoads([shared, ScheduleLoad(shared.schedule, 30, 1, "b"), load("0 * * * *", 20, "a", 2)])
    found = crowded_minutes(loads, plan(loads, Durations(), SPRING_MS + 24 * HOUR_MS, 72))
    assert (instant(found[0].at_ms).minute, max(found[0].minutes)) == (15, 100)
    assert [(one.schedule_id, one.jobs, due) for one, due in found[0].loads] == [(1, 100, 100)]
    assert len({minute.at_ms % (24 * HOUR_MS) // HOUR_MS for minute in found}) == len(found), (
        "one of each hour of the day"
    )

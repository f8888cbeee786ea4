"""Fires per minute, computed from the distinct schedules of a tenant.

Executions are never read. A million jobs on a thousand schedules cost a thousand steps per hour examined. Of more than
MAX_JOBS jobs a random sample is read and extrapolated, so the work does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from mainspring.clock import millis
from mainspring.domain.schedule.budget import BATCH_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.recurrence import Within
from mainspring.domain.schedule.schedule import Schedule, compile_key
from mainspring.store import jobs
from mainspring.store.db import Database

MAX_SCHEDULES = 5000
"""Schedules counted, those with the most jobs first; with more, the counts are lower bounds."""
MAX_JOBS = 200_000
"""Jobs read; of more, a random sample of about this size is extrapolated."""
CROWDED = 60
"""Fires per minute from which a minute counts as crowded: one per second."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_HOURS = 24


@dataclass(frozen=True, slots=True)
class ScheduleLoad:
    """A schedule and the number of jobs that fire on it."""

    schedule: Schedule
    jobs: int
    schedule_id: int = 0
    queue: str = ""


@dataclass(slots=True)
class ScheduleLoads:
    """The fires of a tenant's recurring jobs, by minute. Not `complete`: the numbers are estimates."""

    loads: Sequence[ScheduleLoad]
    complete: bool = True
    _hours: dict[int, list[int]] = field(default_factory=dict)
    _split: tuple[ScheduleLoads, ScheduleLoads] | None = None

    def due_in_minute_of(self, ms: int) -> int:
        """How many executions are due in the minute of an instant."""
        hour_ms = ms - ms % HOUR_MS
        if hour_ms not in self._hours:
            self._hours[hour_ms] = _due_by_minute(self.loads, hour_ms)
        return self._hours[hour_ms][(ms - hour_ms) // MINUTE_MS]

    def split(self, at_ms: int) -> tuple[ScheduleLoads, ScheduleLoads]:
        """Schedules that fire at most hourly, and those that fire more often. CPU-bound: call it in a thread."""
        if self._split is None:
            often = set()
            with steps(BATCH_STEPS):
                for n, load in enumerate(self.loads):
                    with suppress(TooCostly), steps(REQUEST_STEPS):
                        if fires_often(load.schedule, at_ms):
                            often.add(n)
            parts = ([load for n, load in enumerate(self.loads) if (n in often) == wanted] for wanted in (False, True))
            seldom, frequent = (ScheduleLoads(part, self.complete) for part in parts)
            self._split = seldom, frequent
        return self._split

    def most_at(self, fires: Sequence[int], shift_ms: int = 0) -> int:
        """The most executions due in the minute of one of these instants, each shifted by `shift_ms`."""
        return max((self.due_in_minute_of(fire + shift_ms) for fire in fires), default=0)


def fires_often(schedule: Schedule, at_ms: int) -> bool:
    """Whether a schedule fires more often than hourly: more than 24 times in the day that begins with its next fire."""
    first = schedule.next_after(at_ms)
    return first is not None and schedule.count_between(first - 1, first + DAY_HOURS * HOUR_MS - 1) > DAY_HOURS


async def tenant_loads(database: Database, *, tenant: int, by_queue: bool = False) -> ScheduleLoads:
    """The fires of a tenant's current recurring jobs, `by_queue` if wanted; one-time jobs are not included."""
    async with database.connection() as connection:
        part = min(1.0, MAX_JOBS / max(await jobs.estimated_jobs(connection), 1))
        rows = await jobs.schedule_loads(
            connection, tenant=tenant, limit=MAX_SCHEDULES + 1, percent=100 * part, by_queue=by_queue
        )
    loads = []
    compiled: dict[tuple[object, ...], Schedule] = {}  # schedules that several queues share
    with steps(REQUEST_STEPS):
        for schedule_id, key, start_at, end_at, queue, count in rows[:MAX_SCHEDULES]:
            try:
                schedule = compiled.get((schedule_id, start_at, end_at)) or compile_key(key)
            except TooCostly:
                continue
            if (schedule_id, start_at, end_at) not in compiled:
                if start_at is not None or end_at is not None:
                    window = [None if at is None else millis(at) for at in (start_at, end_at)]
                    schedule = Within(schedule, *window)
                compiled[schedule_id, start_at, end_at] = schedule
            loads.append(ScheduleLoad(schedule, round(count / part), schedule_id, queue))
    return ScheduleLoads(loads, complete=len(rows) == len(loads) and part == 1)


def quieter_minute(loads: ScheduleLoads, fires: Sequence[int], minute: int) -> tuple[int, int] | None:
    """A quieter minute of the hour for fires in a crowded one, and the most executions due there.

    The nearest of equally quiet minutes. None if no other has at most half as many.
    """
    most = loads.most_at(fires)
    if most < CROWDED:
        return None
    by_minute = {other: loads.most_at(fires, (other - minute) * MINUTE_MS) for other in range(60)}
    found = min(by_minute, key=lambda other: (by_minute[other], abs(other - minute), other))
    return (found, by_minute[found]) if by_minute[found] * 2 <= most else None


def _due_by_minute(loads: Sequence[ScheduleLoad], hour_ms: int) -> list[int]:
    """Visits only minutes with fires: most schedules fire in few minutes of an hour."""
    due = [0] * 60
    with steps(BATCH_STEPS):
        for load in loads:
            if not load.schedule.walks:
                _add_minutes(due, load, hour_ms)
                continue
            with suppress(TooCostly), steps(REQUEST_STEPS):
                _add_minutes(due, load, hour_ms)
    return due


def _add_minutes(due: list[int], load: ScheduleLoad, hour_ms: int) -> None:
    fire = load.schedule.next_after(hour_ms - 1)
    while fire is not None and fire < hour_ms + HOUR_MS:
        number = (fire - hour_ms) // MINUTE_MS
        end_ms = hour_ms + (number + 1) * MINUTE_MS - 1
        due[number] += load.jobs * load.schedule.count_between(fire - 1, end_ms)
        fire = load.schedule.next_after(end_ms)

"""How crowded a minute is: the executions due in it, from the distinct schedules of a tenant.

Executions are never read. A million jobs on a thousand schedules cost a thousand steps for each hour looked at, and
of very many jobs a random part is read and taken for the whole: the work does not grow with the fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.clock import millis
from mainspring.domain.schedule.recurrence import Within
from mainspring.domain.schedule.schedule import Schedule, compile_key
from mainspring.store import jobs
from mainspring.store.db import Database

MOST_SCHEDULES = 5000
"""So many are counted, those with the most jobs first; with more, the counts are an estimate from below."""
MOST_JOBS = 200_000
"""So many are read; of more, a part of about this size stands for all."""
CROWDED = 60
"""More than one execution a second."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Load:
    """So many jobs fire on this schedule."""

    schedule: Schedule
    jobs: int
    schedule_id: int = 0


@dataclass(slots=True)
class Crowd:
    """What the recurring jobs of a tenant ask for. Not `complete`: the numbers are estimates."""

    loads: Sequence[Load]
    complete: bool = True
    _hours: dict[int, list[int]] = field(default_factory=dict)

    def due_in_minute_of(self, ms: int) -> int:
        """How many executions are due in the minute of an instant."""
        hour_ms = ms - ms % HOUR_MS
        if hour_ms not in self._hours:
            self._hours[hour_ms] = _due_by_minute(self.loads, hour_ms)
        return self._hours[hour_ms][(ms - hour_ms) // MINUTE_MS]

    def most_at(self, fires: Sequence[int], shift_ms: int = 0) -> int:
        """The most that are due at one of these instants, each moved by so much."""
        return max((self.due_in_minute_of(fire + shift_ms) for fire in fires), default=0)


async def crowd(database: Database, *, tenant: int) -> Crowd:
    """The recurring jobs of a tenant as they are now; one-time jobs are not among them."""
    async with database.connection() as connection:
        part = min(1.0, MOST_JOBS / max(await jobs.jobs_about(connection), 1))
        rows = await jobs.schedule_loads(connection, tenant=tenant, limit=MOST_SCHEDULES + 1, percent=100 * part)
    loads = []
    for schedule_id, key, start_at, end_at, count in rows[:MOST_SCHEDULES]:
        schedule = compile_key(key)
        if start_at is not None or end_at is not None:
            window = [None if at is None else millis(at) for at in (start_at, end_at)]
            schedule = Within(schedule, *window)
        loads.append(Load(schedule, round(count / part), schedule_id))
    return Crowd(loads, complete=len(rows) <= MOST_SCHEDULES and part == 1)


def quieter_minute(crowd: Crowd, fires: Sequence[int], minute: int) -> tuple[int, int] | None:
    """For fires at a minute of the hour that is crowded: another minute, and the most that are due there.

    Of equally quiet minutes the nearest is taken. None if no other is at most half as crowded.
    """
    most = crowd.most_at(fires)
    if most < CROWDED:
        return None
    by_minute = {other: crowd.most_at(fires, (other - minute) * MINUTE_MS) for other in range(60)}
    found = min(by_minute, key=lambda other: (by_minute[other], abs(other - minute), other))
    return (found, by_minute[found]) if by_minute[found] * 2 <= most else None


def _due_by_minute(loads: Sequence[Load], hour_ms: int) -> list[int]:
    """Only minutes with fires are visited: most schedules fire in few minutes of an hour."""
    due = [0] * 60
    for load in loads:
        fire = load.schedule.next_after(hour_ms - 1)
        while fire is not None and fire < hour_ms + HOUR_MS:
            number = (fire - hour_ms) // MINUTE_MS
            end_ms = hour_ms + (number + 1) * MINUTE_MS - 1
            due[number] += load.jobs * load.schedule.count_between(fire - 1, end_ms)
            fire = load.schedule.next_after(end_ms)
    return due

"""Fires per hour: past ones from history, future ones from the schedules; proposals to spread crowded minutes.

The work is bounded for any number of jobs. Of a day of history, at most SAMPLE_PAGES random pages are read and
extrapolated. Of the distinct schedules, those with the most jobs are counted, and a sample of the others.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from mainspring.clock import instant, millis
from mainspring.domain.schedule.budget import BATCH_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.store import charts, jobs
from mainspring.store.db import Database
from mainspring.views.fire_density import CROWDED, HOUR_MS, MINUTE_MS, ScheduleLoad, ScheduleLoads

SAMPLE_PAGES = 200
COUNTED_SCHEDULES = 400
DAY = timedelta(days=1)
JITTERS_MIN = (5, 10, 15, 30, 45)
MAX_PROPOSALS = 8
HEAVIEST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PastHour:
    """Fires and failures of an hour; not `exact`: an estimate."""

    fires: int
    failed: int
    exact: bool


@dataclass(frozen=True, slots=True)
class SpreadProposal:
    """How to spread the jobs of one schedule that make a minute crowded: by a jitter, or in another minute."""

    at: datetime
    due: int
    schedule: str
    jobs: int
    examples: Sequence[tuple[UUID, str]]
    jitter_min: int | None
    shift_min: int | None
    then: int


async def past_day(database: Database, day: date, *, tenant: int, hidden: Collection[int] = ()) -> dict[int, PastHour]:
    """The fires that ended on a day, by hour, without those of jobs on the `hidden` schedules."""
    since = datetime(day.year, day.month, day.day, tzinfo=UTC)
    async with database.connection() as connection:
        pages = (await charts.history_pages(connection, days=[day])).get(day)
        if pages is None:
            return {}
        part = min(1.0, SAMPLE_PAGES / max(pages, 1))
        rows = await charts.fires_by_hour(
            connection, tenant=tenant, since=since, until=since + DAY, percent=100 * part, hidden=hidden
        )
    return {millis(at): PastHour(round(fires / part), round(failed / part), part == 1) for at, fires, failed in rows}


def planned(loads: ScheduleLoads, begin_ms: int, hours: int) -> list[int]:
    """Fires due in each of the next hours. CPU-bound: run it in a thread."""
    due = [0.0] * hours
    with steps(BATCH_STEPS):
        for load, weight in counted(loads.loads):
            with suppress(TooCostly), steps(REQUEST_STEPS):
                for number, count in enumerate(due_by_hour(load, begin_ms, hours)):
                    due[number] += weight * count
    return [round(n) for n in due]


def due_by_hour(load: ScheduleLoad, begin_ms: int, hours: int) -> list[int]:
    """Fires of one schedule, for all its jobs, in each of the next hours."""
    due = [0] * hours
    fire = load.schedule.next_after(begin_ms - 1)
    while fire is not None and fire < begin_ms + hours * HOUR_MS:
        number = (fire - begin_ms) // HOUR_MS
        hour_end_ms = begin_ms + (number + 1) * HOUR_MS - 1
        due[number] = load.jobs * load.schedule.count_between(fire - 1, hour_end_ms)
        fire = load.schedule.next_after(hour_end_ms)
    return due


def is_counted(loads: ScheduleLoads) -> bool:
    """Whether every job is counted; otherwise the numbers are estimates."""
    return loads.complete and len(loads.loads) <= COUNTED_SCHEDULES


def counted(loads: Sequence[ScheduleLoad]) -> Iterable[tuple[ScheduleLoad, float]]:
    """The counted loads with their weights. The sample is stable, so that charts do not flicker."""
    if len(loads) <= COUNTED_SCHEDULES:
        return [(load, 1.0) for load in loads]
    largest, others = loads[: COUNTED_SCHEDULES // 2], loads[COUNTED_SCHEDULES // 2 :]
    some = random.Random(len(others)).sample(others, COUNTED_SCHEDULES - len(largest))
    weight = sum(load.jobs for load in others) / max(1, sum(load.jobs for load in some))
    return [*((load, 1.0) for load in largest), *((load, weight) for load in some)]


@dataclass(frozen=True, slots=True)
class CrowdedMinute:
    """The minute of an hour with the most fires, all minutes of the hour, and the schedules with the most."""

    at_ms: int
    minutes: list[int]
    loads: list[tuple[ScheduleLoad, int]]


def most_crowded(loads: ScheduleLoads, hour_ms: int) -> CrowdedMinute:
    """The most crowded minute of an hour. CPU-bound: run it in a thread."""
    minutes = [loads.due_in_minute_of(hour_ms + n * MINUTE_MS) for n in range(60)]
    worst = max(range(60), key=minutes.__getitem__)
    at_ms = hour_ms + worst * MINUTE_MS
    due = []
    with steps(BATCH_STEPS):
        for load in loads.loads:
            with suppress(TooCostly), steps(REQUEST_STEPS):
                due.append((load, load.jobs * load.schedule.count_between(at_ms - 1, at_ms + MINUTE_MS - 1)))
    heaviest = sorted((pair for pair in due if pair[1]), key=lambda pair: -pair[1])
    return CrowdedMinute(at_ms, minutes, heaviest[:HEAVIEST_SHOWN])


async def examples(
    database: Database, found: CrowdedMinute, *, tenant: int, each: int = 3
) -> list[tuple[str, int, list[tuple[UUID, str]]]]:
    """The schedules with the most fires in a crowded minute: description, fires, and some of their jobs."""
    async with database.connection() as connection:
        ids = [load.schedule_id for load, _ in found.loads]
        rows = await jobs.jobs_on_schedules(connection, tenant=tenant, schedule_ids=ids, each=each)
    return [
        (
            load.schedule.describe(),
            due,
            [(job_id, name) for known, job_id, name, _ in rows if known == load.schedule_id],
        )
        for load, due in found.loads
    ]


async def proposals(
    database: Database, found: Iterable[CrowdedMinute], *, tenant: int, each: int = 3
) -> list[SpreadProposal]:
    """Proposals for crowded minutes, those with the most jobs first, one per schedule, with `each` jobs as examples."""
    wanted = {
        load.schedule_id: (minute, load, due)
        for minute in found
        if minute.minutes[(minute.at_ms // MINUTE_MS) % 60] >= CROWDED
        for load, due in minute.loads
        if due * 10 >= minute.minutes[(minute.at_ms // MINUTE_MS) % 60] and due <= load.jobs
    }
    async with database.connection() as connection:
        rows = await charts.unspread_jobs(connection, tenant=tenant, schedule_ids=list(wanted), each=each)
    some: dict[int, list[tuple[UUID, str]]] = {}
    for schedule_id, job_id, name in rows:
        some.setdefault(schedule_id, []).append((job_id, name))
    made = [_propose(*wanted[schedule_id], few) for schedule_id, few in some.items()]
    return sorted((p for p in made if p is not None), key=lambda p: -p.jobs)[:MAX_PROPOSALS]


def _propose(
    found: CrowdedMinute, load: ScheduleLoad, due: int, few: Sequence[tuple[UUID, str]]
) -> SpreadProposal | None:
    minute = (found.at_ms // MINUTE_MS) % 60
    most = found.minutes[minute]
    if load.jobs > 1:
        spread = next((m for m in JITTERS_MIN if load.jobs / m < CROWDED / 2), JITTERS_MIN[-1])
        after = [
            n + (load.jobs // spread if 0 <= (k - minute) % 60 < spread else 0) - (due if k == minute else 0)
            for k, n in enumerate(found.minutes)
        ]
        return SpreadProposal(
            instant(found.at_ms), most, load.schedule.describe(), load.jobs, few, spread, None, max(after)
        )
    quiet = min(range(60), key=lambda k: (found.minutes[k], abs(k - minute)))
    if found.minutes[quiet] * 2 > most:
        return None
    return SpreadProposal(
        instant(found.at_ms),
        most,
        load.schedule.describe(),
        load.jobs,
        few,
        None,
        quiet - minute,
        found.minutes[quiet] + due,
    )

"""The agenda: which jobs fire in a stretch of time, without those that fire more often than hourly."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.clock import instant, millis
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS, Scope
from mainspring.domain.schedule.budget import BATCH_STEPS, FIRE_STEPS, TooCostly, steps
from mainspring.domain.schedule.calendar import blackout_until
from mainspring.domain.schedule.recurrence import Schedule, Within
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store import blackouts, executions, jobs
from mainspring.store.blackouts import BlackoutRow
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views.blackouts import as_blackout
from mainspring.views.closures import hours_held
from mainspring.views.fire_density import DAY_HOURS, HOUR_MS, fires_often
from mainspring.views.fires import ONE_TIME_PER_JOB

MAX_JOBS = 500
"""Jobs that are read, by name."""
MAX_FIRES = 500


@dataclass(frozen=True, slots=True)
class AgendaFire:
    """A fire, and the blackout that will hold it back, if one does."""

    at: datetime
    job_id: UUID
    job: str
    queue: str
    blackout: wire.Blackout | None

    @property
    def hour(self) -> datetime:
        return self.at.replace(minute=0, second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Agenda:
    """`frequent` counts the jobs that fire more often than hourly; `complete`: every job was read.

    `more`: there are fires after the last one shown.
    """

    fires: list[AgendaFire]
    frequent: int
    complete: bool
    more: bool
    blackouts: list[wire.Blackout]


@dataclass(frozen=True, slots=True)
class _Fire:
    at_ms: int
    job_id: UUID
    job: str
    queue: str


async def agenda(
    database: Database,
    *,
    tenant: int,
    frequent: bool = False,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> Agenda:
    """The fires in `[begin, end)` in order, of the next day by default. `frequent`: also of jobs that fire often."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await jobs.list_jobs(connection, tenant=tenant, after="", limit=MAX_JOBS + 1)
        once = await executions.next_one_time(connection, tenant=tenant, limit=MAX_FIRES, each=ONE_TIME_PER_JOB)
        windows = await blackouts.list_blackouts(connection, tenant=tenant, limit=MAX_BLACKOUTS)
    begin_ms = now_ms if begin is None else max(now_ms, millis(begin))
    end_ms = begin_ms + DAY_HOURS * HOUR_MS if end is None else millis(end)
    single = [_Fire(millis(at), job_id, name, queue) for at, job_id, name, queue in once]
    # Hundreds of schedules take tens of milliseconds, too long for the event loop that claims and settles.
    found, often = await calculated(_fires, rows[:MAX_JOBS], begin_ms, end_ms, frequent)
    single = [fire for fire in single if begin_ms <= fire.at_ms < end_ms]
    ordered = sorted([*found, *single], key=lambda fire: (fire.at_ms, fire.job))
    held = await calculated(_held_back, ordered[:MAX_FIRES], windows, tenant)
    near = await calculated(_near, windows, begin_ms, end_ms)
    return Agenda(
        [
            AgendaFire(instant(f.at_ms), f.job_id, f.job, f.queue, None if by is None else as_blackout(by, now_ms))
            for f, by in zip(ordered, held, strict=False)
        ],
        len(often),
        len(rows) <= MAX_JOBS,
        len(ordered) > MAX_FIRES,
        [as_blackout(row, now_ms) for row in near],
    )


def _fires(rows: Sequence[JobRow], begin_ms: int, end_ms: int, frequent: bool) -> tuple[list[_Fire], set[UUID]]:
    """The first fires of all active jobs in order, and the jobs that fire often."""
    often: set[UUID] = set()
    ahead: list[tuple[int, int, Schedule]] = []
    found: list[_Fire] = []
    with steps(BATCH_STEPS):
        for n, row in enumerate(rows):
            if row.paused_at is not None or row.schedule_key is None:
                continue
            with suppress(TooCostly), steps(FIRE_STEPS):
                bounds = [None if at is None else millis(at) for at in (row.start_at, row.end_at)]
                schedule: Schedule = Within(compile_key(row.schedule_key), *bounds)
                if fires_often(schedule, begin_ms - 1):
                    often.add(row.job_id)
                    if not frequent:
                        continue
                _push(ahead, n, schedule, begin_ms - 1, end_ms)
        # The next fire of each job is known, so only as many fires are computed as are shown.
        while ahead and len(found) <= MAX_FIRES:
            at_ms, n, schedule = heapq.heappop(ahead)
            found.append(_Fire(at_ms, rows[n].job_id, rows[n].name, rows[n].spec.queue_name))
            with suppress(TooCostly), steps(FIRE_STEPS):
                _push(ahead, n, schedule, at_ms, end_ms)
    return found, often


def _push(ahead: list[tuple[int, int, Schedule]], n: int, schedule: Schedule, after_ms: int, end_ms: int) -> None:
    at_ms = schedule.next_after(after_ms)
    if at_ms is not None and at_ms < end_ms:
        heapq.heappush(ahead, (at_ms, n, schedule))


def _near(windows: Sequence[BlackoutRow], begin_ms: int, end_ms: int) -> list[BlackoutRow]:
    with steps(BATCH_STEPS):
        return [row for row in windows if hours_held(row.window, begin_ms, end_ms)]


def _held_back(fires: Sequence[_Fire], windows: Sequence[BlackoutRow], tenant: int) -> list[BlackoutRow | None]:
    """The blackout that holds each fire back, if any."""
    scopes = [(Scope(row.tenant, row.queue, row.job_id), row) for row in windows]
    return [
        next(
            (
                row
                for scope, row in scopes
                if scope.covers(Scope(tenant, fire.queue, fire.job_id))
                and blackout_until([row.window], fire.at_ms) is not None
            ),
            None,
        )
        for fire in fires
    ]

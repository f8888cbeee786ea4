"""The agenda: which jobs fire in the next hours, without those that fire more often than hourly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.schedule.budget import FIRE_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.store import jobs
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views.blackouts import list_blackouts
from mainspring.views.fires import next_fires

HOURS = 24
MAX_JOBS = 500
"""Jobs that are read, by name."""
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AgendaFire:
    """A fire, and the blackout that will hold it back, if one does."""

    at: datetime
    job_id: UUID
    job: str
    blackout: wire.Blackout | None

    @property
    def hour(self) -> datetime:
        return self.at.replace(minute=0, second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Agenda:
    """`frequent` counts the jobs that fire more often than hourly; `complete`: every job was read."""

    fires: list[AgendaFire]
    frequent: int
    complete: bool
    blackouts: list[wire.Blackout]


async def agenda(database: Database, *, tenant: int, frequent: bool = False) -> Agenda:
    """The fires of the next hours in order. `frequent`: include the first fires of jobs that fire often."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await jobs.list_jobs(connection, tenant=tenant, after="", limit=MAX_JOBS + 1)
    blackouts = [b for b in (await list_blackouts(database, tenant=tenant)).items if _concerns(b, now_ms)]
    # Hundreds of schedules take tens of milliseconds, too long for the event loop that claims and settles.
    found = await asyncio.to_thread(_fires, rows[:MAX_JOBS], now_ms)
    often = {job_id for job_id, at in found.items() if len(at) > HOURS}
    shown = [
        AgendaFire(instant(at_ms), row.job_id, row.name, _held(row, instant(at_ms), blackouts))
        for row in rows[:MAX_JOBS]
        if frequent or row.job_id not in often
        for at_ms in found[row.job_id]
    ]
    return Agenda(sorted(shown, key=lambda f: (f.at, f.job)), len(often), len(rows) <= MAX_JOBS, blackouts)


def _fires(rows: Sequence[JobRow], now_ms: int) -> dict[UUID, list[int]]:
    """At most one fire more than hourly of each active job."""
    found: dict[UUID, list[int]] = {}
    with steps(REQUEST_STEPS):
        for row in rows:
            found[row.job_id] = []
            if row.paused_at is None:
                with suppress(TooCostly), steps(FIRE_STEPS):
                    ahead = next_fires(row, after_ms=now_ms, count=HOURS + 1)
                    found[row.job_id] = [at for at in ahead if at < now_ms + HOURS * HOUR_MS]
    return found


def _concerns(blackout: wire.Blackout, now_ms: int) -> bool:
    begins = blackout.next_at
    return blackout.holds_until is not None or (begins is not None and begins < instant(now_ms + HOURS * HOUR_MS))


def _held(row: JobRow, at: datetime, blackouts: Sequence[wire.Blackout]) -> wire.Blackout | None:
    for b in blackouts:
        mine = b.job in (None, row.name) and b.queue in (None, row.spec.queue_name)
        if mine and (
            (b.holds_until and at < b.holds_until) or (b.start_at and b.end_at and b.start_at <= at < b.end_at)
        ):
            return b
    return None

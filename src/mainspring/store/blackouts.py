"""Blackouts, and the fires that wait for their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.clock import instant, millis
from mainspring.domain.schedule.blackouts import Scope
from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout
from mainspring.domain.schedule.schedule import ScheduleSpecs, compile_key
from mainspring.store.db import Connection
from mainspring.store.hints import hint_queued, hint_waiting
from mainspring.store.queries import q

Window = Blackout | RecurringBlackout


@dataclass(frozen=True, slots=True)
class BlackoutRow:
    blackout_id: UUID
    tenant: int
    queue: str | None
    job_id: UUID | None
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    schedule_key: str | None
    lasts_ms: int | None
    reason: str
    created_by: str
    created_at: datetime | None = None
    job: str | None = None

    @property
    def window(self) -> Window:
        return window_of(self.start_at, self.end_at, self.schedule_key, self.lasts_ms)


@dataclass(frozen=True, slots=True)
class GatedFire:
    """A due fire of a tenant with blackouts."""

    execution_id: UUID
    scope: Scope
    fire_ms: int
    misfire: str
    misfire_s: float
    now_ms: int


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """Queue a gated fire (`until_ms` None), hold it until the end of a blackout, or skip it."""

    execution_id: UUID
    until_ms: int | None
    skipped: bool


async def open_blackouts(connection: Connection, *, tenant: int | None) -> list[tuple[Scope, Window]]:
    """Blackouts of one tenant, or of all for the scheduler."""
    rows = await connection.fetch(q("open_blackouts"), tenant)
    return [
        (
            Scope(r["tenant_id"], r["queue"], r["job_id"]),
            window_of(r["start_at"], r["end_at"], r["schedule_key"], r["lasts_ms"]),
        )
        for r in rows
    ]


async def list_blackouts(
    connection: Connection, *, tenant: int, limit: int = 1, blackout_id: UUID | None = None, before: UUID | None = None
) -> list[BlackoutRow]:
    return [_row(r) for r in await connection.fetch(q("list_blackouts"), tenant, limit, blackout_id, before)]


async def active_blackouts(connection: Connection, *, tenant: int, limit: int) -> list[BlackoutRow]:
    """Blackouts that may hold fires now; of a recurring one its window says whether it does."""
    return [_row(r) for r in await connection.fetch(q("active_blackouts"), tenant, limit)]


async def insert_blackout(connection: Connection, *, tenant: int, row: BlackoutRow) -> None:
    await connection.execute(
        q("insert_blackout"),
        row.blackout_id,
        tenant,
        row.queue,
        row.job_id,
        row.start_at,
        row.end_at,
        row.schedule,
        row.schedule_key,
        row.lasts_ms,
        row.reason,
        row.created_by,
    )


async def delete_blackout(connection: Connection, *, tenant: int, blackout_id: UUID, by: str) -> bool:
    row = await connection.fetchrow(q("delete_blackout"), blackout_id, tenant, by)
    if row is not None and row["due_at"] is not None:
        hint_waiting(connection, row["due_at"])
    return row is not None


async def lock_gated(connection: Connection, *, shards: Sequence[int], limit: int) -> list[GatedFire]:
    return [
        GatedFire(
            r["execution_id"],
            Scope(r["tenant_id"], r["queue"], r["job_id"]),
            millis(r["fire_at"]),
            r["misfire"],
            r["misfire_s"],
            int(r["now"].timestamp() * 1000),
        )
        for r in await connection.fetch(q("lock_gated"), shards, limit)
    ]


async def apply_gate(connection: Connection, *, verdicts: Sequence[GateVerdict]) -> list[UUID]:
    """Apply verdicts; return jobs with a skipped fire, whose next execution may be released."""
    rows = await connection.fetch(
        q("apply_gate"),
        [v.execution_id for v in verdicts],
        [None if v.until_ms is None else instant(v.until_ms) for v in verdicts],
        [v.skipped for v in verdicts],
    )
    hint_queued(connection, (row for row in rows if row["line_id"] is not None))
    return [row["chained"] for row in rows if row["chained"] is not None]


def window_of(start_at: datetime | None, end_at: datetime | None, key: str | None, lasts_ms: int | None) -> Window:
    """A single or a recurring window; silences have the same columns."""
    if key is not None and lasts_ms is not None:
        return RecurringBlackout(compile_key(key), lasts_ms)
    assert start_at is not None and end_at is not None
    return Blackout(millis(start_at), millis(end_at))


def _row(r: Any) -> BlackoutRow:
    schedule = None if r["schedule"] is None else msgspec.convert(r["schedule"], ScheduleSpecs)
    return BlackoutRow(
        r["blackout_id"],
        r["tenant_id"],
        r["queue"],
        r["job_id"],
        r["start_at"],
        r["end_at"],
        schedule,
        r["schedule_key"],
        r["lasts_ms"],
        r["reason"],
        r["created_by"],
        r["created_at"],
        r["job_name"],
    )

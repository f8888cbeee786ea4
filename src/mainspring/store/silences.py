"""Silences and maintenance windows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.domain.silence import Silence
from mainspring.store.blackouts import Window, window_of
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class SilenceRow:
    silence_id: UUID
    tenant: int
    matchers: dict[str, str]
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    schedule_key: str | None
    lasts_ms: int | None
    reason: str
    created_by: str
    created_at: datetime | None = None

    @property
    def window(self) -> Window:
        return window_of(self.start_at, self.end_at, self.schedule_key, self.lasts_ms)


async def open_silences(connection: Connection) -> list[Silence]:
    """Over all tenants: the leader evaluates the rules of all."""
    return [
        Silence(r["tenant_id"], r["matchers"], window_of(r["start_at"], r["end_at"], r["schedule_key"], r["lasts_ms"]))
        for r in await connection.fetch(q("open_silences"))
    ]


async def list_silences(
    connection: Connection, *, tenant: int, limit: int = 500, silence_id: UUID | None = None
) -> list[SilenceRow]:
    return [_row(r) for r in await connection.fetch(q("list_silences"), tenant, silence_id, limit)]


async def insert_silence(connection: Connection, *, tenant: int, row: SilenceRow) -> None:
    await connection.execute(
        q("insert_silence"),
        row.silence_id,
        tenant,
        row.matchers,
        row.start_at,
        row.end_at,
        row.schedule,
        row.schedule_key,
        row.lasts_ms,
        row.reason,
        row.created_by,
    )
    hint(connection, ports.CHANNELS)


async def delete_silence(connection: Connection, *, tenant: int, silence_id: UUID) -> bool:
    if await connection.fetchrow(q("delete_silence"), silence_id, tenant) is None:
        return False
    await connection.execute(q("release_held"), tenant)
    hint(connection, ports.CHANNELS)
    hint(connection, ports.OUTBOX)
    return True


def _row(r: Any) -> SilenceRow:
    schedule = None if r["schedule"] is None else msgspec.convert(r["schedule"], ScheduleSpecs)
    return SilenceRow(
        r["silence_id"],
        r["tenant_id"],
        r["matchers"],
        r["start_at"],
        r["end_at"],
        schedule,
        r["schedule_key"],
        r["lasts_ms"],
        r["reason"],
        r["created_by"],
        r["created_at"],
    )

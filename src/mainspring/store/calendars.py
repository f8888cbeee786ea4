"""Calendars, their versions, and the jobs that follow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.schedule.calendar import Calendar
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Follower:
    """A job that follows a calendar, with the columns that its fires depend on."""

    job_id: UUID
    name: str
    version: int
    shard: int
    schedule_id: int
    active_from: datetime
    start_at: datetime | None
    end_at: datetime | None
    paused_at: datetime | None


async def calendars_named(connection: Connection, *, tenant: int, names: Sequence[str]) -> dict[str, Calendar]:
    rows = await connection.fetch(q("calendars_named"), tenant, names)
    return {r["name"]: calendar_of(r["name"], _days(r["content"])) for r in rows}


async def list_calendars(
    connection: Connection, *, tenant: int, after: str = "", limit: int = 1, name: str | None = None
) -> list[wire.Calendar]:
    rows = await connection.fetch(q("list_calendars"), tenant, after, limit, name)
    return [
        wire.Calendar(
            name=r["name"],
            version=r["version"],
            days=_days(r["content"]),
            jobs=r["jobs"],
            created_at=r["created_at"],
            created_by=r["created_by"],
        )
        for r in rows
    ]


async def list_versions(
    connection: Connection, *, tenant: int, name: str, before: int, limit: int
) -> list[wire.CalendarVersion]:
    rows = await connection.fetch(q("list_calendar_versions"), tenant, name, before, limit)
    return [
        wire.CalendarVersion(
            version=r["version"], days=_days(r["content"]), created_at=r["created_at"], created_by=r["created_by"]
        )
        for r in rows
    ]


async def write_calendar(
    connection: Connection, *, tenant: int, name: str, days: wire.CalendarDays, created_by: str
) -> int:
    """Write a new version; return its number."""
    return int(await connection.fetchval(q("write_calendar"), tenant, name, days, created_by))


async def delete_calendar(connection: Connection, *, tenant: int, name: str) -> bool:
    return await connection.fetchval(q("delete_calendar"), tenant, name) is not None


async def calendar_followers(connection: Connection, *, tenant: int, name: str, limit: int) -> tuple[list[str], int]:
    """Names of the first few jobs that follow a calendar, and the number of all."""
    rows = await connection.fetch(q("calendar_followers"), tenant, name, limit)
    return [r["name"] for r in rows], rows[0]["jobs"] if rows else 0


async def lock_followers(connection: Connection, *, tenant: int, name: str) -> list[Follower]:
    return [Follower(*r.values()) for r in await connection.fetch(q("lock_followers"), tenant, name)]


async def move_followers(
    connection: Connection, *, tenant: int, name: str, moved: Mapping[int, int], active_from: datetime
) -> None:
    await connection.execute(q("move_followers"), tenant, name, list(moved), list(moved.values()), active_from)


def calendar_of(name: str, days: wire.CalendarDays) -> Calendar:
    return Calendar(name, frozenset(days.dates), tuple(days.rules), days.mode)


def _days(content: Any) -> wire.CalendarDays:
    return msgspec.convert(content, wire.CalendarDays)

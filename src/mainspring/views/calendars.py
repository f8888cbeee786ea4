"""Calendars, their versions and their closed days."""

from __future__ import annotations

from datetime import timedelta

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.schedule.zone import day_number
from mainspring.store import calendars
from mainspring.store.calendars import calendar_of
from mainspring.store.db import Database, database_now_ms
from mainspring.views import refs

MAX_DAYS = 400


async def get(database: Database, name: str, *, tenant: int) -> wire.Calendar:
    async with database.connection() as connection:
        found = await calendars.list_calendars(connection, tenant=tenant, name=name)
    if not found:
        raise NotFound(f"there is no calendar {name!r}")
    return found[0]


async def list_calendars(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.Calendar]:
    """Calendars by name."""
    refs.check_limit(limit)
    async with database.connection() as connection:
        rows = await calendars.list_calendars(connection, tenant=tenant, after=cursor or "", limit=limit + 1)
    return wire.Page(items=rows[:limit], next_cursor=rows[limit - 1].name if len(rows) > limit else None)


async def list_versions(
    database: Database, name: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.CalendarVersion]:
    """All versions of a calendar, newest first; also of a deleted one."""
    refs.check_limit(limit)
    before = refs.number_cursor(cursor) or 1 << 30
    async with database.connection() as connection:
        rows = await calendars.list_versions(connection, tenant=tenant, name=name, before=before, limit=limit + 1)
    if not rows and cursor is None:
        raise NotFound(f"there is no calendar {name!r}")
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].version) if len(rows) > limit else None)


async def closed_days(database: Database, name: str, *, tenant: int, count: int) -> wire.ClosedDays:
    """The next days on which schedules that follow the calendar do not fire."""
    if not 1 <= count <= MAX_DAYS:
        raise invalid("/count", f"{count} is out of range", hint=f"between 1 and {MAX_DAYS}")
    found = await get(database, name, tenant=tenant)
    async with database.connection() as connection:
        today = instant(await database_now_ms(connection)).date()
    calendar = calendar_of(name, found.days)
    days = [today + timedelta(days=n) for n in range(count)]
    closed = [day for day in days if not calendar.is_open(day_number(day.year, day.month, day.day))]
    return wire.ClosedDays(first=days[0], last=days[-1], closed=closed)

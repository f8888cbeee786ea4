"""Blackouts, with their current and next window."""

from __future__ import annotations

from datetime import datetime

from mainspring import wire
from mainspring.clock import LAST_MS, instant
from mainspring.domain.duration import spell_duration
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS
from mainspring.domain.schedule.calendar import blackout_until, next_start
from mainspring.domain.schedule.schedule import describe_spec
from mainspring.store import blackouts
from mainspring.store.blackouts import BlackoutRow
from mainspring.store.db import Database, database_now_ms
from mainspring.views import refs


async def list_blackouts(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = refs.MAX_PAGE
) -> wire.Page[wire.Blackout]:
    """Blackouts, the newest first."""
    refs.check_limit(limit)
    before = refs.parse_cursor(cursor) if cursor else None
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await blackouts.list_blackouts(connection, tenant=tenant, limit=limit + 1, before=before)
    page = [as_blackout(row, now_ms) for row in rows[:limit]]
    return wire.Page(items=page, next_cursor=str(page[-1].blackout_id) if len(rows) > limit else None)


async def over_everything(database: Database, *, tenant: int) -> wire.Blackout | None:
    """The blackout that holds all fires of a tenant back now; of several, the one that ends last."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await blackouts.active_blackouts(connection, tenant=tenant, limit=MAX_BLACKOUTS)
    found = [as_blackout(row, now_ms) for row in rows if row.queue is None and row.job_id is None]
    held = [b for b in found if b.holds_until is not None]
    return max(held, key=lambda b: b.holds_until or b.created_at, default=None)


def as_blackout(row: BlackoutRow, now_ms: int) -> wire.Blackout:
    assert row.created_at is not None
    until, begins = blackout_until([row.window], now_ms), _next_start(row, now_ms)
    return wire.Blackout(
        blackout_id=row.blackout_id,
        queue=row.queue,
        job=row.job,
        start_at=row.start_at,
        end_at=row.end_at,
        schedule=row.schedule,
        lasts_s=None if row.lasts_ms is None else row.lasts_ms / 1000,
        description=describe(row),
        reason=row.reason,
        holds_until=None if until is None else instant(until),
        next_at=begins,
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _next_start(row: BlackoutRow, now_ms: int) -> datetime | None:
    following = next_start(row.window, now_ms)
    return instant(following) if following is not None and now_ms < following <= LAST_MS else None


def describe(row: BlackoutRow) -> str:
    if row.schedule is not None and row.lasts_ms is not None:
        return f"{describe_spec(row.schedule)}, for {spell_duration(row.lasts_ms / 1000)}"
    assert row.start_at is not None and row.end_at is not None
    return f"{row.start_at:%Y-%m-%d %H:%M} to {row.end_at:%Y-%m-%d %H:%M} UTC"

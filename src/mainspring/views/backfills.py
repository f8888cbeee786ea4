"""Backfills and their progress."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.store import backfills
from mainspring.store.db import Database
from mainspring.views import refs


async def get(database: Database, backfill_id: UUID, *, tenant: int) -> wire.Backfill:
    """One backfill with the outcomes of its executions."""
    async with database.connection() as connection:
        found = await backfills.backfill_by_id(connection, tenant=tenant, backfill_id=backfill_id)
    if found is None:
        raise no_such_backfill(backfill_id)
    return found


async def list_backfills(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50, job: str | None = None
) -> wire.Page[wire.Backfill]:
    """Backfills, newest first, without the outcomes of their executions."""
    refs.check_limit(limit)
    before = refs.parse_cursor(cursor)
    job_id = None if job is None else (await refs.job_row(database, job, tenant=tenant)).job_id
    async with database.connection() as connection:
        rows = await backfills.list_backfills(connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id)
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].backfill_id) if len(rows) > limit else None)


def no_such_backfill(backfill_id: UUID) -> NotFound:
    return NotFound(f"there is no backfill {backfill_id}")

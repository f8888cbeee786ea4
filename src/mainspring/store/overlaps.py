"""Executions of one job that wait for one another, by its overlap policy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from mainspring.store import needs
from mainspring.store.db import Connection
from mainspring.store.hints import hint_cancelled, hint_placed
from mainspring.store.queries import q


async def lock_chained(connection: Connection, *, schedule_ids: Sequence[int], shards: Sequence[int]) -> None:
    """Lock job rows, then the executions that a new one may replace."""
    await connection.execute(q("lock_chained"), schedule_ids, shards)
    await connection.execute(q("lock_replaceable"), schedule_ids, shards)


async def replace_running(
    connection: Connection, *, schedule_ids: Sequence[int], shards: Sequence[int], now: datetime
) -> list[UUID]:
    """Apply the policy cancel_running; return the jobs with a new execution."""
    rows = await connection.fetch(q("replace_running"), schedule_ids, shards, now)
    hint_cancelled(connection, (r for r in rows if r["session_id"] is not None))
    return [r["job_id"] for r in rows if r["job_id"] is not None]


async def lock_jobs(connection: Connection, *, job_ids: Sequence[UUID]) -> list[UUID]:
    """Lock jobs; return those that need others."""
    return [r["job_id"] for r in await connection.fetch(q("lock_jobs"), job_ids) if r["needs"]]


async def release_blocked(connection: Connection, *, job_ids: Sequence[UUID]) -> None:
    """Release the next blocked execution of jobs of any tenant. Needs a transaction."""
    if needing := await queue_blocked(connection, job_ids=job_ids):
        await needs.release(connection, children=needing)


async def queue_blocked(connection: Connection, *, job_ids: Sequence[UUID]) -> list[UUID]:
    """Queue the next blocked execution of jobs; return the jobs for which the caller must call `needs.release`."""
    needing = await lock_jobs(connection, job_ids=job_ids)
    rows = await connection.fetch(q("release_blocked"), job_ids)
    hint_placed(connection, rows)
    return needing


async def blocked_jobs(connection: Connection, *, limit: int) -> list[UUID]:
    """Return jobs of all tenants with blocked executions."""
    return [r["job_id"] for r in await connection.fetch(q("blocked_jobs"), limit)]

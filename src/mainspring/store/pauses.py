"""Automatic pauses after failures, and pauses that end at a set time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class AutoPausingJob:
    """A job that is paused when its last `after` fires have failed."""

    job_id: UUID
    tenant: int
    shard: int
    after: int


async def pauses_over(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Return (job, tenant) of jobs of all tenants whose pause is over."""
    return [(r["job_id"], r["tenant_id"]) for r in await connection.fetch(q("pauses_over"), limit)]


async def next_pause_over_s(connection: Connection) -> float | None:
    wait_s: float | None = await connection.fetchval(q("next_pause_over"))
    return wait_s


async def auto_pausing_jobs(connection: Connection, *, execution_ids: Sequence[UUID]) -> list[AutoPausingJob]:
    """Return the jobs of these executions that pause after failures, of any tenant."""
    rows = await connection.fetch(q("auto_pausing_jobs"), execution_ids)
    return [AutoPausingJob(r["job_id"], r["tenant_id"], r["shard"], r["pause_after"]) for r in rows]


async def lock_shard_rows(connection: Connection, *, shards: Sequence[int]) -> None:
    await connection.execute(q("lock_shard_rows"), shards)


async def has_failed_enough(connection: Connection, *, tenant: int, job_id: UUID) -> bool:
    return bool(await connection.fetchval(q("has_failed_enough"), job_id, tenant))

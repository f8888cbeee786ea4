"""Automatic pauses after failures, and pauses that end at a set time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring.domain.schedule.budget import PAUSED_TOO_COSTLY
from mainspring.store.audit import AuditSubject, record_all
from mainspring.store.db import Connection
from mainspring.store.queries import q

SYSTEM = "the system"


@dataclass(frozen=True, slots=True)
class AutoPausingJob:
    """A job that is paused when its last `after` fires have failed."""

    job_id: UUID
    tenant: int
    shard: int
    after: int


@dataclass(frozen=True, slots=True)
class PausedJob:
    """A job that was paused because its schedule is too costly."""

    job_id: UUID
    tenant: int
    name: str


async def pause_too_costly(
    connection: Connection, *, schedule_ids: Sequence[int], shards: Sequence[int], owner: UUID
) -> list[PausedJob]:
    """Pause the jobs of all tenants on these schedules, in shards that `owner` has locked; return those paused."""
    rows = await connection.fetch(q("pause_too_costly"), schedule_ids, shards, owner, PAUSED_TOO_COSTLY)
    paused = [PausedJob(r["job_id"], r["tenant_id"], r["name"]) for r in rows]
    for tenant in sorted({job.tenant for job in paused}):
        entries = [AuditSubject(str(job.job_id), job.name) for job in paused if job.tenant == tenant]
        await record_all(connection, "job.pause", entries, tenant=tenant, by=SYSTEM, reason=PAUSED_TOO_COSTLY)
    return paused


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

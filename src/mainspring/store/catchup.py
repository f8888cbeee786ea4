"""Missed fires of one job at resume."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.clock import instant
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.schedule.misfire import MisfireVerdict
from mainspring.store.db import Connection
from mainspring.store.hints import hint_cancelled, hint_queued
from mainspring.store.queries import q


async def lock_executions_of_job(connection: Connection, *, tenant: int, job_id: UUID) -> None:
    await connection.execute(q("lock_executions_of_job"), job_id, tenant)


async def liveness_of_job(connection: Connection, *, tenant: int, job_id: UUID) -> tuple[bool, bool]:
    """Whether the job has a live execution, and whether it has a pending one."""
    row = await connection.fetchrow(q("liveness_of_job"), job_id, tenant)
    assert row is not None
    return row["lives"], row["pending"]


async def insert_missed(
    connection: Connection, *, tenant: int, job_id: UUID, fires: Sequence[int], chained: bool
) -> None:
    """Insert missed fires, with the ids they would have had on time."""
    rows = await connection.fetch(
        q("insert_missed"),
        job_id,
        tenant,
        [_id(job_id, at) for at in fires],
        [instant(at) for at in fires],
        fires,
        chained,
    )
    hint_queued(connection, rows)


async def skip_missed(connection: Connection, *, tenant: int, job_id: UUID, skipped: Sequence[MisfireVerdict]) -> None:
    await connection.execute(
        q("skip_missed"),
        job_id,
        tenant,
        [_id(job_id, v.fire_ms) for v in skipped],
        [instant(v.fire_ms) for v in skipped],
        [v.skipped for v in skipped],
    )


async def replace_running_of(connection: Connection, *, tenant: int, job_id: UUID) -> None:
    hint_cancelled(connection, await connection.fetch(q("replace_running_of"), job_id, tenant))


def _id(job_id: UUID, fire_ms: int) -> UUID:
    return execution_id(job_id, fire_ms, fire_key(fire_ms))

"""Pauses a job whose last fires have all failed, in the transaction that settles the last of them.

Locks are taken in the same order as by an edit: shard rows, then jobs, then executions. So the jobs that may be paused
are found and locked before their executions are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import structlog

from mainspring.domain.execution import FAILED
from mainspring.domain.settlement import Final, LockedExecution
from mainspring.store import jobs, overlaps, pauses, shards
from mainspring.store.db import Connection
from mainspring.store.pauses import AutoPausingJob
from mainspring.store.withdrawn_fires import record_withdrawn

log = structlog.get_logger()


async def lock_auto_pausing(connection: Connection, execution_ids: Sequence[UUID]) -> list[AutoPausingJob]:
    """Lock the jobs that a failure among these executions may pause, and their shards."""
    found = await pauses.auto_pausing_jobs(connection, execution_ids=execution_ids)
    if found:
        await pauses.lock_shard_rows(connection, shards=sorted({job.shard for job in found}))
        await overlaps.lock_jobs(connection, job_ids=sorted(job.job_id for job in found))
    return found


def failed_jobs(locked: Sequence[LockedExecution], final: Sequence[Final]) -> dict[UUID, UUID]:
    """Return the jobs with an execution that has just failed for good, and that execution."""
    job_of = {row.execution_id: row.job_id for row in locked}
    ended = [f.ended.execution_id for f in final if f.state in FAILED]
    return {job_of[execution_id]: execution_id for execution_id in ended}


async def pause_failing(
    connection: Connection, pausing: Sequence[AutoPausingJob], failed: Collection[UUID]
) -> list[UUID]:
    """Pause those of the jobs that have failed often enough in a row; return their ids."""
    paused = []
    for job in sorted(pausing, key=lambda job: job.shard):
        if job.job_id not in failed:
            continue
        if not await pauses.has_failed_enough(connection, tenant=job.tenant, job_id=job.job_id):
            continue
        change, watermark_ms = await shards.bump_shard(connection, shard=job.shard)
        row = await jobs.job_by_id(connection, tenant=job.tenant, job_id=job.job_id)
        assert row is not None, "its row is locked"
        reason = f"the last {job.after} executions failed" if job.after > 1 else "the last execution failed"
        paused_at = await jobs.pause_job(connection, tenant=job.tenant, job_id=job.job_id, change=change, reason=reason)
        if paused_at is not None:
            await record_withdrawn(connection, row, watermark_ms=watermark_ms, upto=paused_at, reason="paused")
            paused.append(job.job_id)
            log.warning("job.paused", job=row.name, failures=job.after)
    return paused

"""Pausing a job whose last fires have all failed for good, in the transaction that settles the last of them.

Locks are taken as an editor takes them: shard rows, then jobs, then executions. So the jobs that may be paused are
found and held before their executions are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import structlog

from mainspring.store import jobs, overlaps, pauses, shards
from mainspring.store.db import Connection
from mainspring.store.pauses import Pausing
from mainspring.store.results import FAILED, Final, Held
from mainspring.store.withdrawn_fires import account_for

log = structlog.get_logger()


async def hold_pausing(connection: Connection, execution_ids: Sequence[UUID]) -> list[Pausing]:
    """The jobs that a failure among these executions may pause; held, with their shards."""
    found = await pauses.jobs_that_pause(connection, execution_ids=execution_ids)
    if found:
        await pauses.hold_shards(connection, shards=sorted({p.shard for p in found}))
        await overlaps.lock_jobs(connection, job_ids=sorted(p.job_id for p in found))
    return found


def failed_jobs(held: Sequence[Held], final: Sequence[Final]) -> dict[UUID, UUID]:
    """Jobs with an execution that has just failed for good, and that execution."""
    job_of = {h.execution_id: h.job_id for h in held}
    ended = [f.ended.execution_id for f in final if f.state in FAILED]
    return {job_of[execution_id]: execution_id for execution_id in ended}


async def pause_failing(connection: Connection, pausing: Sequence[Pausing], failed: Collection[UUID]) -> list[UUID]:
    """Pauses those of the jobs that have failed often enough; returns them."""
    paused = []
    for p in sorted(pausing, key=lambda p: p.shard):
        if p.job_id not in failed:
            continue
        if not await pauses.has_failed_enough(connection, tenant=p.tenant, job_id=p.job_id):
            continue
        change, watermark_ms = await shards.bump_shard(connection, shard=p.shard)
        row = await jobs.job_by_id(connection, tenant=p.tenant, job_id=p.job_id)
        assert row is not None, "its row is held"
        reason = f"the last {p.after} executions failed" if p.after > 1 else "the last execution failed"
        paused_at = await jobs.pause_job(connection, tenant=p.tenant, job_id=p.job_id, change=change, reason=reason)
        if paused_at is not None:
            await account_for(connection, row, watermark_ms=watermark_ms, upto=paused_at, reason="paused")
            paused.append(p.job_id)
            log.warning("paused a job that keeps failing", job=row.name, failures=p.after)
    return paused

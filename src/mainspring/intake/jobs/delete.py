"""Delete jobs."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.ids import shard_of
from mainspring.intake import dependents
from mainspring.intake.granted import check_granted
from mainspring.intake.jobs.rows import action_on, job_row, version_conflict
from mainspring.store import audit, channels, executions, jobs, overlaps, shards
from mainspring.store.db import Database
from mainspring.store.withdrawn_fires import record_withdrawn


async def delete(
    database: Database,
    job_id: UUID,
    *,
    tenant: int,
    by: str,
    reason: str = "",
    detach: bool = False,
    seen: int | None = None,
) -> None:
    """Delete a job: no more fires, pending executions are cancelled, running ones continue, the history stays.

    A job that others need is refused, unless `detach` removes those dependencies. With `seen`, only if that is still
    the current version.
    """
    text = f"job deleted by {by}" + (f": {reason}" if reason else "")
    async with database.transaction() as connection:
        row = await job_row(connection, tenant=tenant, job_id=job_id)
        children = await dependents.refuse_needed(connection, row, tenant=tenant, detach=detach)
        bumped = {
            shard: await shards.bump_shard(connection, shard=shard)
            for shard in sorted({shard_of(job_id), *(child.shard for child in children)})
        }
        change, watermark_ms = bumped[shard_of(job_id)]
        await overlaps.lock_jobs(connection, job_ids=[job_id, *(child.job_id for child in children)])
        row = await job_row(connection, tenant=tenant, job_id=job_id)
        check_granted(by, row.spec)
        if seen is not None and seen != row.version:
            raise version_conflict(seen, row.version)
        deleted_at = await jobs.delete_job(connection, tenant=tenant, job_id=job_id, change=change)
        if deleted_at is None:
            raise NotFound(f"there is no job {job_id}")
        await record_withdrawn(connection, row, watermark_ms=watermark_ms, upto=deleted_at, reason="deleted")
        await executions.cancel_pending_of_job(connection, tenant=tenant, job_id=job_id, reason=text)
        if row.spec.notify:
            await channels.replace_notifications(connection, tenant=tenant, job_id=job_id, rows=[])
        changes = {shard: number for shard, (number, _) in bumped.items()}
        await dependents.detach(connection, row, children, changes=changes, tenant=tenant, by=by)
        await audit.record(
            connection, action_on(row.spec, "delete"), job_id, tenant=tenant, by=by, name=row.name, reason=reason
        )

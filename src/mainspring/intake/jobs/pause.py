"""Pause and resume jobs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import invalid
from mainspring.ids import shard_of
from mainspring.intake.catchup import catch_up
from mainspring.intake.granted import check_granted
from mainspring.intake.jobs.rows import SYSTEM, action_on, job_row, lock_job
from mainspring.store import audit, executions, jobs, shards
from mainspring.store.db import Database, database_now_ms
from mainspring.store.withdrawn_fires import record_withdrawn


async def pause(
    database: Database, job_id: UUID, *, tenant: int, reason: str, until: datetime | None = None, by: str = SYSTEM
) -> None:
    """Suspend future fires until the job is resumed or `until` is reached; queued and running executions continue.

    Pausing a paused job replaces the end of the pause and, if one is given, its reason.
    """
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        await lock_job(connection, tenant=tenant, job_id=job_id)
        if until is not None and until.timestamp() * 1000 <= await database_now_ms(connection):
            raise invalid("/until", f"{until.isoformat()} is in the past", hint="give a future time, or leave it out")
        row = await job_row(connection, tenant=tenant, job_id=job_id)
        check_granted(by, row.spec)
        paused_at = await jobs.pause_job(
            connection, tenant=tenant, job_id=job_id, change=change, reason=reason, until=until
        )
        if paused_at is None:
            await jobs.update_pause(connection, tenant=tenant, job_id=job_id, reason=reason, until=until)
        else:
            await record_withdrawn(connection, row, watermark_ms=watermark_ms, upto=paused_at, reason="paused")
            await executions.hold_fires(connection, tenant=tenant, job_id=job_id)
        until_text = None if until is None else until.isoformat()
        await audit.record(
            connection,
            action_on(row.spec, "pause"),
            job_id,
            tenant=tenant,
            by=by,
            name=row.name,
            reason=reason,
            until=until_text,
        )


async def resume(
    database: Database, job_id: UUID, *, tenant: int, caught_up: bool = False, if_over: bool = False, by: str = SYSTEM
) -> bool:
    """Resume fires from now on; return whether the job was paused.

    Fires missed during the pause are recorded as skipped; with `caught_up` the misfire and overlap policies decide
    them. With `if_over` only a pause whose end has been reached is ended.
    """
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        await lock_job(connection, tenant=tenant, job_id=job_id)
        row = await job_row(connection, tenant=tenant, job_id=job_id)
        check_granted(by, row.spec)
        now = await jobs.resume_job(connection, tenant=tenant, job_id=job_id, change=change, if_over=if_over)
        if now is None:
            return False
        misfire = row.spec.misfire
        if caught_up:
            await catch_up(connection, row, upto=now)
        else:
            await record_withdrawn(connection, row, watermark_ms=watermark_ms, upto=now, reason="paused")
        window_s = parse_duration(misfire.window) if caught_up and misfire.policy != "skip" else None
        await executions.free_fires(connection, tenant=tenant, job_id=job_id, catch_up_s=window_s)
        await audit.record(
            connection, action_on(row.spec, "resume"), job_id, tenant=tenant, by=by, name=row.name, catch_up=caught_up
        )
        return True

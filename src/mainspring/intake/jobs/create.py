"""Create jobs."""

from __future__ import annotations

from uuid import UUID

from mainspring.clock import instant
from mainspring.domain.job import JobSpec, check
from mainspring.ids import new_id, shard_of
from mainspring.intake.granted import check_granted
from mainspring.intake.job_notifications import write_notifications
from mainspring.intake.jobs.rows import (
    action_on,
    add_one_time_fire,
    allowed_plaintext,
    name_taken,
    placement_of,
    refuse_workflow,
    resolve_schedule,
)
from mainspring.intake.quota import Charge, schedule_charge
from mainspring.intake.tenant_quotas import check_schedules, reserve_jobs
from mainspring.intake.validate.isolation import check_isolation
from mainspring.intake.validate.plugins import check_settings
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.intake.validate.secrets import check_plaintext, check_references
from mainspring.store import audit, jobs, shards
from mainspring.store.db import Connection, Database, Taken, database_now_ms


async def create(database: Database, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False) -> UUID:
    """Create a job; its first fire is the first one after now."""
    refuse_workflow(spec)
    adds = spec.schedule is not None
    try:
        async with (
            schedule_charge(database, adds_schedule=adds, tenant=tenant, by=by) as charge,
            database.transaction() as connection,
        ):
            return await insert_job(connection, spec, tenant=tenant, by=by, charge=charge, may_exceed=may_exceed)
    except Taken:
        raise name_taken(spec.name) from None


async def insert_job(
    connection: Connection, spec: JobSpec, *, tenant: int, by: str, charge: Charge, may_exceed: bool = False
) -> UUID:
    """Create a job in the caller's transaction. Raises `Taken` if the name is in use."""
    charge.cover(spec.schedule is not None)
    check(spec)
    check_granted(by, spec)
    check_plaintext(spec)
    now_ms = int(await database_now_ms(connection))
    job_id = new_id(now_ms)
    await check_settings(connection, spec, tenant=tenant)
    await check_isolation(connection, spec, tenant=tenant)
    await check_references(connection, spec, tenant=tenant)
    exceeds = await exceeds_bound(connection, spec, tenant=tenant, may_exceed=may_exceed)
    await reserve_jobs(connection, 1, tenant=tenant)
    change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
    now_ms = max(now_ms, watermark_ms)
    when = await resolve_schedule(connection, spec, tenant=tenant, now_ms=now_ms)
    await check_schedules(connection, [when], tenant=tenant, now_ms=now_ms)
    await jobs.insert_job(
        connection,
        tenant=tenant,
        job_id=job_id,
        name=spec.name,
        shard=shard_of(job_id),
        change=change,
        at=await placement_of(connection, spec, when, tenant=tenant, job_id=job_id),
        paused=spec.paused,
        active_from=instant(now_ms),
    )
    await jobs.insert_version(
        connection, tenant=tenant, job_id=job_id, version=1, spec=spec, created_by=by, exceeds=exceeds
    )
    if spec.notify:
        await write_notifications(connection, spec, tenant=tenant, job_id=job_id)
    await add_one_time_fire(connection, when, tenant=tenant, job_id=job_id, by=by, held=spec.paused)
    await audit.record(
        connection, action_on(spec, "create"), job_id, tenant=tenant, by=by, name=spec.name, **allowed_plaintext(spec)
    )
    return job_id

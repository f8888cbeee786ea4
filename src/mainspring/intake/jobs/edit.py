"""Edit jobs: every edit writes a new, immutable version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.audit import recorded_changes
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.job import JobSpec, WorkflowTask, check
from mainspring.domain.schedule.schedule import Resolved, members_of
from mainspring.ids import shard_of
from mainspring.intake.granted import check_granted
from mainspring.intake.job_notifications import write_notifications
from mainspring.intake.jobs.merge import merged
from mainspring.intake.jobs.rows import (
    action_on,
    add_one_time_fire,
    allowed_plaintext,
    finish_by_s,
    job_row,
    lock_job,
    name_taken,
    placement_of,
    refuse_workflow,
    resolve_schedule,
    version_conflict,
)
from mainspring.intake.quota import Charge, NotCharged, schedule_charge, without_charge
from mainspring.intake.tenant_quotas import check_schedules
from mainspring.intake.validate.isolation import check_isolation
from mainspring.intake.validate.plugins import check_settings
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.intake.validate.secrets import check_plaintext, check_references
from mainspring.store import audit, executions, jobs, shards
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.store.withdrawn_fires import record_withdrawn
from mainspring.views.fires import next_fires
from mainspring.views.jobs import version_of
from mainspring.views.schedules import fires_of

PREVIEWED_FIRES = 10


@dataclass(frozen=True, slots=True)
class EditAudit:
    """Verb and details of the audit entry of an edit; the changed fields of a job are added."""

    verb: str = "edit"
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job before its edit, with its shard and job rows locked."""

    row: JobRow
    spec: JobSpec
    exceeds: bool
    change: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """The new version. `over_at`: fires of the old definition up to here must be recorded, if set."""

    version: int
    rescheduled: bool
    when: Resolved | None
    over_at: datetime | None


class Unchanged(Exception):
    """The definition is the same: nothing was written."""


async def patch(
    database: Database,
    job_id: UUID,
    changes: dict[str, Any],
    *,
    tenant: int,
    by: str,
    seen: int | None = None,
    may_exceed: bool = False,
) -> None:
    """Merge changes into the definition as a new version, effective now. With `seen`, only if that is still current."""
    await _edit(
        database, job_id, lambda spec: merged(spec, changes), tenant=tenant, by=by, seen=seen, may_exceed=may_exceed
    )


async def replace_spec(
    database: Database, job_id: UUID, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False
) -> None:
    """Write a whole definition as a new version; it neither pauses nor resumes the job. May raise `Unchanged`."""

    def replaced(old: JobSpec) -> JobSpec:
        new = msgspec.structs.replace(spec, paused=old.paused)
        if new == old:
            raise Unchanged
        return new

    await _edit(database, job_id, replaced, tenant=tenant, by=by, seen=None, may_exceed=may_exceed)


async def rollback(
    database: Database,
    job_id: UUID,
    version: int,
    *,
    tenant: int,
    by: str,
    seen: int | None = None,
    may_exceed: bool = False,
) -> None:
    """Write an earlier definition as a new version; it neither pauses nor resumes the job. `seen` as in `patch`."""
    spec = await version_of(database, job_id, version, tenant=tenant)
    await _edit(
        database,
        job_id,
        lambda old: msgspec.structs.replace(spec, paused=old.paused),
        tenant=tenant,
        by=by,
        seen=seen,
        may_exceed=may_exceed,
        entry=EditAudit("rollback", details={"to": version}),
    )


async def replace_workflow(
    database: Database,
    job_id: UUID,
    change_spec: Callable[[JobSpec], JobSpec],
    write_workflow: Callable[[Connection, int], Awaitable[None]],
    *,
    tenant: int,
    by: str,
    seen: int | None,
    details: dict[str, Any],
    rollback_to: int | None = None,
) -> None:
    """Write a new version of a workflow's job; `write_workflow` writes its steps in the same transaction."""
    entry = EditAudit("edit", details) if rollback_to is None else EditAudit("rollback", details | {"to": rollback_to})
    await _edit(
        database, job_id, change_spec, tenant=tenant, by=by, seen=seen, write_workflow=write_workflow, entry=entry
    )


async def preview_patch(
    database: Database, job_id: UUID, changes: dict[str, Any], *, tenant: int, may_exceed: bool = False
) -> wire.Change:
    """What `patch` would do: writes nothing, and refuses what `patch` would refuse."""
    async with database.connection() as connection:
        row = await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
        if row is None or row.deleted_at is not None:
            raise NotFound(f"there is no job {job_id}")
        now_ms = int(await database_now_ms(connection))
        old = msgspec.structs.replace(row.spec, paused=row.paused_at is not None)
        spec = merged(old, changes)
        check(spec)
        check_plaintext(spec, old)
        await check_settings(connection, spec, tenant=tenant)
        await check_isolation(connection, spec, tenant=tenant)
        await check_references(connection, spec, tenant=tenant)
        await exceeds_bound(connection, spec, tenant=tenant, may_exceed=may_exceed, before=(old, False))
        rescheduled = spec.schedule != old.schedule
        when = await resolve_schedule(connection, spec, tenant=tenant, now_ms=now_ms) if rescheduled else None
    before = next_fires(row, after_ms=now_ms, count=PREVIEWED_FIRES)
    after = fires_of(when, after_ms=now_ms, count=PREVIEWED_FIRES) if rescheduled else before
    return wire.Change(spec=spec, fires_before=[*map(instant, before)], fires_after=[*map(instant, after)])


async def _edit(
    database: Database,
    job_id: UUID,
    change_spec: Callable[[JobSpec], JobSpec],
    *,
    tenant: int,
    by: str,
    seen: int | None,
    write_workflow: Callable[[Connection, int], Awaitable[None]] | None = None,
    may_exceed: bool = False,
    entry: EditAudit | None = None,
) -> None:
    async def edit(charge: Charge) -> None:
        await _edit_charged(
            database, job_id, change_spec, tenant=tenant, by=by, seen=seen, write_workflow=write_workflow,
            may_exceed=may_exceed, entry=entry or EditAudit(), charge=charge,
        )  # fmt: skip

    try:
        await edit(without_charge(by))
    except NotCharged:  # found out with the job locked; the charge itself must not wait for a connection there
        async with schedule_charge(database, tenant=tenant, by=by) as charge:
            await edit(charge)


async def _edit_charged(
    database: Database,
    job_id: UUID,
    change_spec: Callable[[JobSpec], JobSpec],
    *,
    tenant: int,
    by: str,
    seen: int | None,
    write_workflow: Callable[[Connection, int], Awaitable[None]] | None,
    may_exceed: bool,
    entry: EditAudit,
    charge: Charge,
) -> None:
    name = ""
    try:
        async with database.transaction() as connection:
            job = await _lock(connection, job_id, tenant=tenant, seen=seen)
            spec = change_spec(job.spec)
            name = spec.name
            check_granted(by, job.spec, spec)
            charge.cover(job.spec.schedule is None and spec.schedule is not None)
            if write_workflow is None:
                refuse_workflow(job.spec)
                refuse_workflow(spec)
            check(spec)
            check_plaintext(spec, job.spec)
            await check_settings(connection, spec, tenant=tenant)
            await check_isolation(connection, spec, tenant=tenant)
            await check_references(connection, spec, tenant=tenant)
            exceeds = await exceeds_bound(
                connection, spec, tenant=tenant, may_exceed=may_exceed, before=(job.spec, job.exceeds)
            )
            written = await _write_version(connection, job, spec, by=by, exceeds=exceeds)
            if write_workflow is not None:
                await write_workflow(connection, written.version)
            await _apply_to_fires(connection, job, spec, written, by=by)
            await audit.record(
                connection,
                action_on(spec, entry.verb),
                job_id,
                tenant=tenant,
                by=by,
                name=spec.name,
                version=written.version,
                **(_changes(job.spec, spec) | allowed_plaintext(spec) | entry.details),
            )
    except Taken:
        raise name_taken(name) from None


async def _lock(connection: Connection, job_id: UUID, *, tenant: int, seen: int | None) -> LockedJob:
    change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
    version, spec, paused, exceeds = await lock_job(connection, tenant=tenant, job_id=job_id)
    if seen is not None and seen != version:
        raise version_conflict(seen, version)
    row = await job_row(connection, tenant=tenant, job_id=job_id)
    return LockedJob(row, msgspec.structs.replace(spec, paused=paused), exceeds, change, watermark_ms)


async def _write_version(
    connection: Connection, job: LockedJob, spec: JobSpec, *, by: str, exceeds: bool
) -> WrittenVersion:
    row, tenant, job_id = job.row, job.row.tenant, job.row.job_id
    now_ms = int(await database_now_ms(connection))
    rescheduled = spec.schedule != job.spec.schedule or (_hashed(job.spec) and spec.name != job.spec.name)
    when = await resolve_schedule(connection, spec, tenant=tenant, now_ms=now_ms) if rescheduled else None
    await check_schedules(connection, [when], tenant=tenant, now_ms=now_ms)
    if row.needs and when is not None and when.key is None:
        message = "a job that needs others can't have a one-time schedule"
        raise invalid("/schedule", message, hint="remove its needs first")
    placement = await placement_of(connection, spec, when, tenant=tenant, job_id=job_id)
    if not rescheduled:  # an interval keeps its phase, and a start or end in the past is no reason to refuse
        placement = replace(
            placement,
            schedule_id=row.schedule_id,
            start_at=row.start_at,
            end_at=row.end_at,
            jitter_ms=row.jitter_ms,
            finish_by_s=finish_by_s(spec, row.schedule_key, row.start_at),
            calendars=row.calendars,
        )
    version, over_at = await jobs.update_job(
        connection,
        tenant=tenant,
        job_id=job_id,
        version=row.version,
        name=spec.name,
        change=job.change,
        at=placement,
        rescheduled=rescheduled,
        paused=spec.paused,
        resumed=job.spec.paused and not spec.paused,
        active_from=instant(now_ms),
    )
    await jobs.insert_version(
        connection, tenant=tenant, job_id=job_id, version=version, spec=spec, created_by=by, exceeds=exceeds
    )
    return WrittenVersion(version, rescheduled, when, over_at)


async def _apply_to_fires(
    connection: Connection, job: LockedJob, spec: JobSpec, written: WrittenVersion, *, by: str
) -> None:
    """Update notifications; cancel, record, hold or release fires of the old definition."""
    tenant, job_id = job.row.tenant, job.row.job_id
    if spec.notify != job.spec.notify:
        await write_notifications(connection, spec, tenant=tenant, job_id=job_id)
    if written.rescheduled:
        await executions.cancel_pending_of_job(
            connection, tenant=tenant, job_id=job_id, reason="rescheduled", trigger="fire"
        )
        await add_one_time_fire(connection, written.when, tenant=tenant, job_id=job_id, by=by, held=spec.paused)
    if written.over_at is not None:
        reason = "rescheduled" if written.rescheduled else "paused"
        await record_withdrawn(connection, job.row, watermark_ms=job.watermark_ms, upto=written.over_at, reason=reason)
    if spec.paused != job.spec.paused:
        hold_or_free = executions.hold_fires if spec.paused else executions.free_fires
        await hold_or_free(connection, tenant=tenant, job_id=job_id)


def _changes(old: JobSpec, new: JobSpec) -> dict[str, Any]:
    """What the audit log says of an edit; that of a workflow says itself which steps differ."""
    return {} if isinstance(new.task, WorkflowTask) else recorded_changes(old, new)


def _hashed(spec: JobSpec) -> bool:
    """Whether the schedule depends on the job's name (`H` in a cron expression)."""
    return any(member.cron is not None and "H" in member.cron for member in members_of(spec.schedule))

"""Creating and changing jobs: checked, then written in one transaction that the shard's ticks are ordered with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.codec import problem_of
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Invalid, MainspringError, NotFound, Problem, invalid
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.job import JobSpec, WorkflowTask, check
from mainspring.domain.placement.line import keyed, line_of
from mainspring.domain.schedule.schedule import Resolved, calendars_of, describe_spec, job_seed, members_of, notes
from mainspring.ids import new_id, shard_of
from mainspring.intake import audit, dependents
from mainspring.intake.catchup import catch_up
from mainspring.intake.job_notifications import write_notices
from mainspring.intake.validate.plugins import check_settings
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.intake.validate.schedules import resolved
from mainspring.store import channels, executions, jobs, lines, overlaps, schedules, shards
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.withdrawn_fires import account_for
from mainspring.views import fires as fire_views

KINDS = {"cron", "every", "at", "rrule"}
RECURRING = {"exclude", "calendar", "roll", "jitter", "max_fires"}

PREVIEWED = 10
SYSTEM = "the system"


@dataclass(frozen=True, slots=True)
class Deed:
    """What the audit is told of an edit, besides its version and, if `details` name none, the fields that differ."""

    verb: str = "edit"
    details: dict[str, Any] = field(default_factory=dict)


EDIT = Deed()


async def create(database: Database, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False) -> UUID:
    """Adds a job; its first fire is the first one after now."""
    _refuse_workflow(spec)
    try:
        async with database.transaction() as connection:
            return await add(connection, spec, tenant=tenant, by=by, may_exceed=may_exceed)
    except Taken:
        raise name_taken(spec.name) from None


async def add(connection: Connection, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False) -> UUID:
    """Adds a job in the caller's transaction; a name that is taken ends that with `Taken`."""
    check(spec)
    now_ms = int(await database_now_ms(connection))
    job_id = new_id(now_ms)
    await check_settings(connection, spec, tenant=tenant)
    exceeds = await exceeds_bound(connection, spec, tenant=tenant, may_exceed=may_exceed)
    change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
    now_ms = max(now_ms, watermark_ms)
    when = await _resolve(connection, spec, tenant=tenant, now_ms=now_ms)
    await jobs.insert_job(
        connection,
        tenant=tenant,
        job_id=job_id,
        name=spec.name,
        shard=shard_of(job_id),
        change=change,
        at=await _placement(connection, spec, when, tenant=tenant, job_id=job_id),
        paused=spec.paused,
        active_from=instant(now_ms),
    )
    await jobs.insert_version(
        connection, tenant=tenant, job_id=job_id, version=1, spec=spec, created_by=by, exceeds=exceeds
    )
    if spec.notify:
        await write_notices(connection, spec, tenant=tenant, job_id=job_id)
    await _add_one_time_fire(connection, when, tenant=tenant, job_id=job_id, by=by, held=spec.paused)
    await audit.record(connection, action_on(spec, "create"), job_id, tenant=tenant, by=by, name=spec.name)
    return job_id


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
    """Merges changes into the definition as a new version; from now on it is in force.

    With `seen`, only if that is still the current version.
    """
    await _edit(
        database, job_id, lambda spec: _merged(spec, changes), tenant=tenant, by=by, seen=seen, may_exceed=may_exceed
    )


class Unchanged(Exception):
    """The job is like that already: nothing is written."""


async def replace_spec(
    database: Database, job_id: UUID, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False
) -> None:
    """A whole new definition as a new version; whether the job is paused does not change. May raise `Unchanged`."""

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
    """An earlier definition as a new version; whether the job is paused does not change. `seen` as in `patch`."""
    spec = await version_of(database, job_id, version, tenant=tenant)
    await _edit(
        database,
        job_id,
        lambda old: msgspec.structs.replace(spec, paused=old.paused),
        tenant=tenant,
        by=by,
        seen=seen,
        may_exceed=may_exceed,
        deed=Deed("rollback", details={"to": version}),
    )


async def try_patch(
    database: Database, job_id: UUID, changes: dict[str, Any], *, tenant: int, may_exceed: bool = False
) -> wire.Change:
    """What `patch` would do: nothing is written, and everything that would be refused is."""
    async with database.connection() as connection:
        row = await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
        if row is None or row.deleted_at is not None:
            raise NotFound(f"there is no job {job_id}")
        now_ms = int(await database_now_ms(connection))
        old = msgspec.structs.replace(row.spec, paused=row.paused_at is not None)
        spec = _merged(old, changes)
        check(spec)
        await check_settings(connection, spec, tenant=tenant)
        await exceeds_bound(connection, spec, tenant=tenant, may_exceed=may_exceed, before=(old, False))
        changed = spec.schedule != old.schedule
        when = await _resolve(connection, spec, tenant=tenant, now_ms=now_ms) if changed else None
    before = fire_views.next_fires(row, after_ms=now_ms, count=PREVIEWED)
    after = before if spec.schedule == old.schedule else fires_of(when, after_ms=now_ms, count=PREVIEWED)
    return wire.Change(spec=spec, fires_before=[*map(instant, before)], fires_after=[*map(instant, after)])


async def preview(database: Database, request: wire.PreviewRequest, *, tenant: int) -> wire.Preview:
    """What a schedule means, by the code that fires it."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        seed = job_seed(tenant, request.job) if request.job else None
        when = await resolved(connection, request.schedule, tenant=tenant, now_ms=now_ms, seed=seed)
    after_ms = now_ms if request.after is None else millis(request.after)
    return wire.Preview(
        description=describe_spec(request.schedule, seed=seed),
        fires=[*map(instant, fires_of(when, after_ms=after_ms, count=request.count))],
        notes=notes(when.key, after_ms) if when.key else [],
    )


async def version_of(database: Database, job_id: UUID, version: int, *, tenant: int) -> JobSpec:
    """The definition that a version of a job had."""
    async with database.connection() as connection:
        found = await jobs.list_versions(connection, tenant=tenant, job_id=job_id, before=version + 1, limit=1)
    if not found or found[0][0] != version:
        raise NotFound(f"the job has no version {version}")
    return found[0][1]


async def replace_workflow(
    database: Database,
    job_id: UUID,
    change_spec: Callable[[JobSpec], JobSpec],
    then: Callable[[Connection, int], Awaitable[None]],
    *,
    tenant: int,
    by: str,
    seen: int | None,
    details: dict[str, Any],
    rollback_to: int | None = None,
) -> None:
    """A new version of a workflow's job; `then` writes the rest of it, in the same transaction."""
    deed = Deed("edit", details) if rollback_to is None else Deed("rollback", details | {"to": rollback_to})
    await _edit(database, job_id, change_spec, tenant=tenant, by=by, seen=seen, then=then, deed=deed)


def action_on(spec: JobSpec, verb: str) -> str:
    """As the audit names it: a workflow is a job, but not to those who wrote it."""
    return f"{'workflow' if isinstance(spec.task, WorkflowTask) else 'job'}.{verb}"


async def _edit(
    database: Database,
    job_id: UUID,
    change_spec: Callable[[JobSpec], JobSpec],
    *,
    tenant: int,
    by: str,
    seen: int | None,
    then: Callable[[Connection, int], Awaitable[None]] | None = None,
    may_exceed: bool = False,
    deed: Deed = EDIT,
) -> None:
    name = ""
    try:
        async with database.transaction() as connection:
            change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
            version, old, paused, exceeded = await _lock(connection, tenant=tenant, job_id=job_id)
            if seen is not None and seen != version:
                raise changed_meanwhile(seen, version)
            spec = change_spec(msgspec.structs.replace(old, paused=paused))
            name = spec.name
            if then is None:
                _refuse_workflow(old)
                _refuse_workflow(spec)
            check(spec)
            await check_settings(connection, spec, tenant=tenant)
            exceeds = await exceeds_bound(
                connection, spec, tenant=tenant, may_exceed=may_exceed, before=(old, exceeded)
            )
            now_ms = int(await database_now_ms(connection))
            rescheduled = spec.schedule != old.schedule or (_spread(old) and spec.name != old.name)
            when = await _resolve(connection, spec, tenant=tenant, now_ms=now_ms) if rescheduled else None
            row = await _row(connection, tenant=tenant, job_id=job_id)
            if row.needs and when is not None and when.key is None:
                raise invalid(
                    "/schedule", "a job that needs others can't be due only once", hint="remove its needs first"
                )
            placement = await _placement(connection, spec, when, tenant=tenant, job_id=job_id)
            if not rescheduled:  # an interval keeps its phase, and times that have passed are no reason to refuse
                placement = replace(
                    placement,
                    schedule_id=row.schedule_id,
                    start_at=row.start_at,
                    end_at=row.end_at,
                    jitter_ms=row.jitter_ms,
                    calendars=row.calendars,
                )
            new_version, over_at = await jobs.update_job(
                connection,
                tenant=tenant,
                job_id=job_id,
                version=version,
                name=spec.name,
                change=change,
                at=placement,
                rescheduled=rescheduled,
                paused=spec.paused,
                resumed=paused and not spec.paused,
                active_from=instant(now_ms),
            )
            await jobs.insert_version(
                connection,
                tenant=tenant,
                job_id=job_id,
                version=new_version,
                spec=spec,
                created_by=by,
                exceeds=exceeds,
            )
            if then is not None:
                await then(connection, new_version)
            if spec.notify != old.notify:
                await write_notices(connection, spec, tenant=tenant, job_id=job_id)
            if rescheduled:
                await executions.cancel_pending_of_job(
                    connection, tenant=tenant, job_id=job_id, reason="rescheduled", trigger="fire"
                )
                await _add_one_time_fire(connection, when, tenant=tenant, job_id=job_id, by=by, held=spec.paused)
            if over_at is not None:
                reason = "rescheduled" if rescheduled else "paused"
                await account_for(connection, row, watermark_ms=watermark_ms, upto=over_at, reason=reason)
            if spec.paused != paused:
                await _hold_or_free(connection, tenant=tenant, job_id=job_id, held=spec.paused)
            details = {"fields": _changed(msgspec.structs.replace(old, paused=paused), spec)} | deed.details
            await audit.record(
                connection,
                action_on(spec, deed.verb),
                job_id,
                tenant=tenant,
                by=by,
                name=spec.name,
                version=new_version,
                **details,
            )
    except Taken:
        raise name_taken(name) from None


def _changed(old: JobSpec, new: JobSpec) -> list[str]:
    return [name for name in JobSpec.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def _refuse_workflow(spec: JobSpec) -> None:
    if isinstance(spec.task, WorkflowTask):
        hint = "use mainspring workflows apply, or workflows rollback"
        raise invalid("/task/kind", "a workflow is written as a whole", hint=hint)


def _spread(spec: JobSpec) -> bool:
    """Whether the schedule depends on the job's name (`H` in a cron expression)."""
    return any(member.cron is not None and "H" in member.cron for member in members_of(spec.schedule))


async def pause(
    database: Database, job_id: UUID, *, tenant: int, reason: str, until: datetime | None = None, by: str = SYSTEM
) -> None:
    """Stops future fires, until someone resumes it or `until` comes; what is queued or running goes on.

    Of a paused job only the end of the pause and its reason change: what was said last counts.
    """
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        await _lock(connection, tenant=tenant, job_id=job_id)
        if until is not None and until.timestamp() * 1000 <= await database_now_ms(connection):
            raise invalid("/until", f"{until.isoformat()} has passed", hint="name a time to come, or leave it out")
        row = await _row(connection, tenant=tenant, job_id=job_id)
        paused_at = await jobs.pause_job(
            connection, tenant=tenant, job_id=job_id, change=change, reason=reason, until=until
        )
        if paused_at is None:
            await jobs.pause_again(connection, tenant=tenant, job_id=job_id, reason=reason, until=until)
        else:
            await account_for(connection, row, watermark_ms=watermark_ms, upto=paused_at, reason="paused")
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
    """Fires again, from now on; tells whether it was paused.

    What came due meanwhile is recorded as skipped; with `caught_up` the misfire and overlap policies apply to it. With
    `if_over` only a pause whose end has come is ended.
    """
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        await _lock(connection, tenant=tenant, job_id=job_id)
        row = await _row(connection, tenant=tenant, job_id=job_id)
        now = await jobs.resume_job(connection, tenant=tenant, job_id=job_id, change=change, if_over=if_over)
        if now is None:
            return False
        misfire = row.spec.misfire
        if caught_up:
            await catch_up(connection, row, upto=now)
        else:
            await account_for(connection, row, watermark_ms=watermark_ms, upto=now, reason="paused")
        window_s = parse_duration(misfire.window) if caught_up and misfire.policy != "skip" else None
        await executions.free_fires(connection, tenant=tenant, job_id=job_id, catch_up_s=window_s)
        await audit.record(
            connection, action_on(row.spec, "resume"), job_id, tenant=tenant, by=by, name=row.name, catch_up=caught_up
        )
        return True


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
    """No fires any more; what had not started is cancelled, what runs goes on, the history stays.

    A job that others need stays, unless they are to go on without it (`detach`). With `seen`, only if that is still the
    current version.
    """
    words = f"job deleted by {by}" + (f": {reason}" if reason else "")
    async with database.transaction() as connection:
        row = await _row(connection, tenant=tenant, job_id=job_id)
        children = await dependents.refuse_needed(connection, row, tenant=tenant, detach=detach)
        bumped = {
            shard: await shards.bump_shard(connection, shard=shard)
            for shard in sorted({shard_of(job_id), *(child.shard for child in children)})
        }
        change, watermark_ms = bumped[shard_of(job_id)]
        await overlaps.lock_jobs(connection, job_ids=[job_id, *(child.job_id for child in children)])
        row = await _row(connection, tenant=tenant, job_id=job_id)
        if seen is not None and seen != row.version:
            raise changed_meanwhile(seen, row.version)
        deleted_at = await jobs.delete_job(connection, tenant=tenant, job_id=job_id, change=change)
        if deleted_at is None:
            raise NotFound(f"there is no job {job_id}")
        await account_for(connection, row, watermark_ms=watermark_ms, upto=deleted_at, reason="deleted")
        await executions.cancel_pending_of_job(connection, tenant=tenant, job_id=job_id, reason=words)
        if row.spec.notify:
            await channels.replace_notices(connection, tenant=tenant, job_id=job_id, rows=[])
        changes = {shard: number for shard, (number, _) in bumped.items()}
        await dependents.detach(connection, row, children, changes=changes, tenant=tenant, by=by)
        await audit.record(
            connection, action_on(row.spec, "delete"), job_id, tenant=tenant, by=by, name=row.name, reason=reason
        )


async def _resolve(connection: Connection, spec: JobSpec, *, tenant: int, now_ms: int) -> Resolved | None:
    if spec.schedule is None:
        return None
    return await resolved(connection, spec.schedule, tenant=tenant, now_ms=now_ms, seed=job_seed(tenant, spec.name))


def fires_of(when: Resolved | None, *, after_ms: int, count: int) -> list[int]:
    """The next instants of a schedule that is not yet a job's."""
    if when is None:
        return []
    if when.key is None:
        return [when.at_ms] if when.at_ms is not None and when.at_ms > after_ms else []
    return fire_views.fires_within(when.key, when.start_ms, when.end_ms, after_ms=after_ms, count=count)


def _merged(old: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """RFC 7396: null removes, objects merge, anything else replaces."""
    known, schedule = msgspec.to_builtins(old), changes.get("schedule")
    if isinstance(schedule, dict) and isinstance(known["schedule"], dict) and KINDS & schedule.keys():
        # A new kind of schedule replaces the old kind.
        gone = KINDS if "rrule" in schedule else KINDS | {"dtstart", "exdates"}
        gone = gone | RECURRING if "at" in schedule else gone
        known["schedule"] = {k: v for k, v in known["schedule"].items() if k not in gone}
    try:
        return msgspec.convert(_merge(known, changes), JobSpec)
    except msgspec.ValidationError as error:
        raise Invalid("the change does not fit", problems=(problem_of(str(error), JobSpec),)) from None


def _merge(old: Any, changes: Any) -> Any:
    if not isinstance(changes, dict):
        return changes
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


async def _row(connection: Connection, *, tenant: int, job_id: UUID) -> jobs.JobRow:
    row = await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


async def _placement(
    connection: Connection, spec: JobSpec, when: Resolved | None, *, tenant: int, job_id: UUID
) -> jobs.Placement:
    key = when.key if when is not None else None
    (line,) = await lines.intern_lines(connection, tenant=tenant, specs=[line_of(spec, job_id=job_id)])
    return jobs.Placement(
        schedule_id=None if key is None else await schedules.intern_schedule(connection, key=key),
        start_at=None if when is None or when.start_ms is None else instant(when.start_ms),
        end_at=None if when is None or when.end_ms is None else instant(when.end_ms),
        queue=spec.queue_name,
        priority=spec.priority,
        overlap=spec.overlap_policy,
        misfire=spec.misfire.policy,
        misfire_s=parse_duration(spec.misfire.window),
        misfire_most=spec.misfire.max,
        pause_after=spec.pause_after_failures,
        start_by_s=_seconds(spec.start_by),
        finish_by_s=_seconds(spec.finish_by),
        max_gap_s=_seconds(spec.max_gap),
        jitter_ms=when.jitter_ms or None if when is not None else None,
        calendars=calendars_of(spec.schedule) or None,
        line=line,
        keyed=keyed(spec),
    )


def _seconds(duration: str | int | float | None) -> float | None:
    return None if duration is None else parse_duration(duration)


async def _add_one_time_fire(
    connection: Connection, when: Resolved | None, *, tenant: int, job_id: UUID, by: str, held: bool
) -> None:
    if when is None or when.at_ms is None:
        return
    fire = executions.NewExecution(
        execution_id(job_id, when.at_ms, fire_key(when.at_ms)), job_id, "fire", instant(when.at_ms)
    )
    await executions.insert_executions(connection, tenant=tenant, new=[fire], created_by=by)
    if held:
        await executions.hold_fires(connection, tenant=tenant, job_id=job_id)


async def _hold_or_free(connection: Connection, *, tenant: int, job_id: UUID, held: bool) -> None:
    step = executions.hold_fires if held else executions.free_fires
    await step(connection, tenant=tenant, job_id=job_id)


async def _lock(connection: Connection, *, tenant: int, job_id: UUID) -> tuple[int, JobSpec, bool, bool]:
    found = await jobs.lock_job(connection, tenant=tenant, job_id=job_id)
    if found is None:
        raise NotFound(f"there is no job {job_id}")
    return found


def changed_meanwhile(seen: int, version: int) -> MainspringError:
    message = f"the job has version {version} by now; this change was made for version {seen}"
    return Conflict(
        message, code="version_changed", problems=(Problem("/version", message, "look at it again, then save"),)
    )


def name_taken(name: str) -> MainspringError:
    return Conflict(
        f"there is a job {name!r} already",
        code="name_taken",
        problems=(Problem("/name", f"{name!r} is taken", "choose another name, or change that job instead"),),
    )

"""Creating and changing jobs: checked, then written in one transaction that the shard's ticks are ordered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.codec import problem_of
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Invalid, MainspringError, NotFound, Problem
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.job import JobSpec, check
from mainspring.domain.line import keyed, line_of
from mainspring.domain.schedule import Resolved, ScheduleError, ScheduleSpec, describe_spec, job_seed, notes, resolve
from mainspring.ids import new_id, shard_of
from mainspring.intake import catalog
from mainspring.intake.undecided import account_for
from mainspring.store import executions, jobs, lines, schedules, shards
from mainspring.store.db import Connection, Database, Taken, database_now_ms

KINDS = {"cron", "every", "at", "rrule"}


PREVIEWED = 10


async def create(database: Database, spec: JobSpec, *, tenant: int, by: str) -> UUID:
    """Adds a job; its first fire is the first one after now."""
    check(spec)
    try:
        async with database.transaction() as connection:
            now_ms = int(await database_now_ms(connection))
            job_id = new_id(now_ms)
            when = resolve_schedule(spec, now_ms, tenant)
            change, _ = await shards.bump_shard(connection, shard=shard_of(job_id))
            await jobs.insert_job(
                connection, tenant=tenant, job_id=job_id, name=spec.name, shard=shard_of(job_id), change=change,
                at=await _placement(connection, spec, when, tenant=tenant, job_id=job_id), paused=spec.paused,
            )  # fmt: skip
            await jobs.insert_version(connection, tenant=tenant, job_id=job_id, version=1, spec=spec, created_by=by)
            await _add_one_time_fire(connection, when, tenant=tenant, job_id=job_id, by=by, held=spec.paused)
    except Taken:
        raise _name_taken(spec.name) from None
    return job_id


async def patch(database: Database, job_id: UUID, changes: dict[str, Any], *, tenant: int, by: str) -> None:
    """Merges changes into the definition as a new version; from now on it is in force."""
    await _edit(database, job_id, lambda spec: _merged(spec, changes), tenant=tenant, by=by)


async def rollback(database: Database, job_id: UUID, version: int, *, tenant: int, by: str) -> None:
    """An earlier definition as a new version; whether the job is paused does not change."""
    spec = await _version(database, job_id, version, tenant=tenant)
    await _edit(database, job_id, lambda old: msgspec.structs.replace(spec, paused=old.paused), tenant=tenant, by=by)


async def try_patch(database: Database, job_id: UUID, changes: dict[str, Any], *, tenant: int) -> wire.Change:
    """What `patch` would do: nothing is written, and everything that would be refused is."""
    async with database.connection() as connection:
        row = await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
        if row is None or row.deleted_at is not None:
            raise NotFound(f"there is no job {job_id}")
        now_ms = int(await database_now_ms(connection))
    old = msgspec.structs.replace(row.spec, paused=row.paused_at is not None)
    spec = _merged(old, changes)
    check(spec)
    when = resolve_schedule(spec, now_ms, tenant) if spec.schedule != old.schedule else None
    before = catalog.next_fires(row, after_ms=now_ms, count=PREVIEWED)
    after = before if spec.schedule == old.schedule else fires_of(when, after_ms=now_ms, count=PREVIEWED)
    return wire.Change(spec=spec, fires_before=[*map(instant, before)], fires_after=[*map(instant, after)])


async def preview(database: Database, request: wire.PreviewRequest, *, tenant: int) -> wire.Preview:
    """What a schedule means, by the code that fires it."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
    seed = job_seed(tenant, request.job) if request.job else None
    when = _resolved(request.schedule, now_ms, seed)
    after_ms = now_ms if request.after is None else millis(request.after)
    return wire.Preview(
        description=describe_spec(request.schedule, seed=seed),
        fires=[*map(instant, fires_of(when, after_ms=after_ms, count=request.count))],
        notes=notes(when.key, after_ms) if when.key else [],
    )


async def _version(database: Database, job_id: UUID, version: int, *, tenant: int) -> JobSpec:
    async with database.connection() as connection:
        found = await jobs.list_versions(connection, tenant=tenant, job_id=job_id, before=version + 1, limit=1)
    if not found or found[0][0] != version:
        raise NotFound(f"the job has no version {version}")
    return found[0][1]


async def _edit(
    database: Database, job_id: UUID, change_spec: Callable[[JobSpec], JobSpec], *, tenant: int, by: str
) -> None:
    name = ""
    try:
        async with database.transaction() as connection:
            change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
            version, old, paused = await _lock(connection, tenant=tenant, job_id=job_id)
            spec = change_spec(msgspec.structs.replace(old, paused=paused))
            name = spec.name
            check(spec)
            now_ms = int(await database_now_ms(connection))
            rescheduled = spec.schedule != old.schedule or (_spread(old) and spec.name != old.name)
            when = resolve_schedule(spec, now_ms, tenant) if rescheduled else None
            row = await _row(connection, tenant=tenant, job_id=job_id)
            placement = await _placement(connection, spec, when, tenant=tenant, job_id=job_id)
            if not rescheduled:  # an interval keeps its phase, and times that have passed are no reason to refuse
                placement = replace(placement, schedule_id=row.schedule_id, start_at=row.start_at, end_at=row.end_at)
            new_version, over_at = await jobs.update_job(
                connection, tenant=tenant, job_id=job_id, version=version, name=spec.name, change=change,
                at=placement, rescheduled=rescheduled, paused=spec.paused,
            )  # fmt: skip
            await jobs.insert_version(
                connection, tenant=tenant, job_id=job_id, version=new_version, spec=spec, created_by=by
            )
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
    except Taken:
        raise _name_taken(name) from None


def _spread(spec: JobSpec) -> bool:
    """Whether the schedule depends on the job's name (`H` in a cron expression)."""
    return spec.schedule is not None and spec.schedule.cron is not None and "H" in spec.schedule.cron


async def pause(database: Database, job_id: UUID, *, tenant: int, reason: str) -> None:
    """Stops future fires; what is queued or running goes on. Pausing twice changes nothing."""
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        await _lock(connection, tenant=tenant, job_id=job_id)
        row = await _row(connection, tenant=tenant, job_id=job_id)
        paused_at = await jobs.pause_job(connection, tenant=tenant, job_id=job_id, change=change, reason=reason)
        if paused_at is not None:
            await account_for(connection, row, watermark_ms=watermark_ms, upto=paused_at, reason="paused")
            await executions.hold_fires(connection, tenant=tenant, job_id=job_id)


async def resume(database: Database, job_id: UUID, *, tenant: int) -> None:
    """Fires again, from now on."""
    async with database.transaction() as connection:
        change, _ = await shards.bump_shard(connection, shard=shard_of(job_id))
        await _lock(connection, tenant=tenant, job_id=job_id)
        if await jobs.resume_job(connection, tenant=tenant, job_id=job_id, change=change):
            await executions.free_fires(connection, tenant=tenant, job_id=job_id)


async def delete(database: Database, job_id: UUID, *, tenant: int, by: str) -> None:
    """No fires any more; what had not started is cancelled, what runs goes on, the history stays."""
    async with database.transaction() as connection:
        change, watermark_ms = await shards.bump_shard(connection, shard=shard_of(job_id))
        row = await _row(connection, tenant=tenant, job_id=job_id)
        deleted_at = await jobs.delete_job(connection, tenant=tenant, job_id=job_id, change=change)
        if deleted_at is None:
            raise NotFound(f"there is no job {job_id}")
        await account_for(connection, row, watermark_ms=watermark_ms, upto=deleted_at, reason="deleted")
        await executions.cancel_pending_of_job(connection, tenant=tenant, job_id=job_id, reason=f"job deleted by {by}")


def resolve_schedule(spec: JobSpec, now_ms: int, tenant: int) -> Resolved | None:
    """The schedule in canonical form, or the problem with it as the user wrote it."""
    return None if spec.schedule is None else _resolved(spec.schedule, now_ms, job_seed(tenant, spec.name))


def fires_of(when: Resolved | None, *, after_ms: int, count: int) -> list[int]:
    """The next instants of a schedule that is not yet a job's."""
    if when is None:
        return []
    if when.key is None:
        return [when.at_ms] if when.at_ms is not None and when.at_ms > after_ms else []
    return catalog.fires_within(when.key, when.start_ms, when.end_ms, after_ms=after_ms, count=count)


def _resolved(schedule: ScheduleSpec, now_ms: int, seed: str | None) -> Resolved:
    try:
        return resolve(schedule, now_ms=now_ms, seed=seed)
    except ScheduleError as error:
        problem = Problem(f"/schedule{error.pointer}", error.message, error.hint)
        raise Invalid(error.message, code=error.code, problems=(problem,)) from None


def _merged(old: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """RFC 7396: null removes, objects merge, anything else replaces."""
    known, schedule = msgspec.to_builtins(old), changes.get("schedule")
    if isinstance(schedule, dict) and known["schedule"] and KINDS & schedule.keys():
        # A new kind of schedule replaces the old kind.
        gone = KINDS if "rrule" in schedule else KINDS | {"dtstart", "exdates"}
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
        line=line,
        keyed=keyed(spec),
    )


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


async def _lock(connection: Connection, *, tenant: int, job_id: UUID) -> tuple[int, JobSpec, bool]:
    found = await jobs.lock_job(connection, tenant=tenant, job_id=job_id)
    if found is None:
        raise NotFound(f"there is no job {job_id}")
    return found


def _name_taken(name: str) -> MainspringError:
    return Conflict(
        f"there is a job {name!r} already",
        code="name_taken",
        problems=(Problem("/name", f"{name!r} is taken", "choose another name, or change that job instead"),),
    )

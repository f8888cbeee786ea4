"""Create and edit many jobs in the caller's transaction, with a number of statements that does not grow with them.

`check_many` finds every problem without a lock; `write_many` then locks the shards for as long as the writes take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.clock import instant
from mainspring.domain.audit import recorded_changes
from mainspring.domain.errors import Conflict, Invalid, MainspringError, Problem, invalid
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.job import JobSpec, problems_of
from mainspring.domain.placement.line import line_of
from mainspring.domain.schedule.calendar import Calendar
from mainspring.domain.schedule.schedule import (
    NO_CALENDARS,
    Resolved,
    ScheduleError,
    calendars_of,
    job_seed,
    members_of,
    resolve_all,
)
from mainspring.ids import new_id, shard_of
from mainspring.intake.jobs.rows import allowed_plaintext, finish_by_s, placement, refuse_workflow
from mainspring.intake.tenant_quotas import check_schedules, reserve_jobs
from mainspring.intake.validate.isolation import check_isolation
from mainspring.intake.validate.plugins import check_settings
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.intake.validate.secrets import check_plaintext, check_references
from mainspring.store import audit, calendars, channels, executions, jobs, lines, schedules, shards
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection, database_now_ms
from mainspring.store.jobs import JobRow, Placement, WrittenJob
from mainspring.store.lines import LineRef
from mainspring.store.withdrawn_fires import record_withdrawn

ROWS = 2_000
"""Rows of one statement; between statements, other requests are served."""


@dataclass(frozen=True, slots=True)
class JobWrite:
    """A job to create (`before` is None), or the next definition of a job with the version that was read.

    `needs`: whether it will need other jobs; None: as before.
    """

    spec: JobSpec
    before: JobRow | None = None
    exceeds_before: bool = False
    needs: bool | None = None


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    job_id: UUID
    version: int


class Schedules:
    """Resolves schedules as of one instant; equal ones once."""

    def __init__(self, known: Mapping[str, Calendar], *, tenant: int, now_ms: int) -> None:
        self._known = known
        self._tenant = tenant
        self._now_ms = now_ms
        self._resolved: dict[tuple[bytes, str | None], Resolved] = {}

    @classmethod
    async def read(
        cls,
        connection: Connection,
        specs: Sequence[JobSpec],
        *,
        tenant: int,
        now_ms: int,
        planned: Mapping[str, Calendar] = NO_CALENDARS,
    ) -> Schedules:
        """Read the calendars that these jobs follow; `planned` ones replace those of the same name."""
        names = sorted({name for spec in specs for name in calendars_of(spec.schedule)})
        known = await calendars.calendars_named(connection, tenant=tenant, names=names) if names else {}
        return cls({**known, **planned}, tenant=tenant, now_ms=now_ms)

    def of(self, spec: JobSpec) -> Resolved | None:
        """The schedule of a job; raises Invalid with a pointer to what is wrong."""
        if spec.schedule is None:
            return None
        hashed = any(member.cron is not None and "H" in member.cron.upper() for member in members_of(spec.schedule))
        seed = job_seed(self._tenant, spec.name)
        key = (msgspec.json.encode(spec.schedule), seed if hashed else None)
        found = self._resolved.get(key)
        if found is None:
            try:
                found = resolve_all(spec.schedule, now_ms=self._now_ms, seed=seed, calendars=self._known)
            except ScheduleError as error:
                problem = Problem(f"/schedule{error.pointer}", error.message, error.hint)
                raise Invalid(error.message, code=error.code, problems=(problem,)) from None
            self._resolved[key] = found
        return found


async def check_many(
    connection: Connection, writes: Sequence[JobWrite], resolver: Schedules, *, tenant: int, may_exceed: bool
) -> dict[int, MainspringError]:
    """Return what is wrong with which of the jobs, by position; writes nothing and locks nothing."""
    found: dict[int, MainspringError] = {}
    checks = _SharedChecks(connection, tenant=tenant, may_exceed=may_exceed)
    for number, write in enumerate(writes):
        if number % 100 == 99:
            await asyncio.sleep(0)  # let other requests run in between
        try:
            if problems := problems_of(write.spec):
                raise Invalid(problems[0].message, problems=tuple(problems))
            refuse_workflow(write.spec)
            _refuse_one_time_with_needs(write, resolver.of(write.spec) if _rescheduled(write) else None)
            await checks.exceeds(write)
        except (Invalid, Conflict) as error:
            found[number] = error
    return found


async def write_many(
    connection: Connection, writes: Sequence[JobWrite], *, tenant: int, by: str, may_exceed: bool
) -> list[WrittenVersion]:
    """Create and edit jobs in the caller's transaction. They have passed `check_many`, and notify known channels.

    Locks the shards of all jobs, in order. Raises Conflict if a job has another version by now.
    """
    if not writes:
        return []
    checks = _SharedChecks(connection, tenant=tenant, may_exceed=may_exceed)
    exceeds = [await checks.exceeds(write) for write in writes]
    await reserve_jobs(connection, sum(write.before is None for write in writes), tenant=tenant)
    started_ms = int(await database_now_ms(connection))
    ids = [write.before.job_id if write.before is not None else new_id(started_ms) for write in writes]
    bumped = await shards.bump_edited_shards(connection, shards={shard_of(job_id) for job_id in ids})
    writes = await _as_locked(connection, writes, tenant=tenant)
    now_ms = max(int(await database_now_ms(connection)), *(watermark_ms for _, watermark_ms in bumped.values()))
    resolver = await Schedules.read(connection, [w.spec for w in writes], tenant=tenant, now_ms=now_ms)
    resolved = [resolver.of(write.spec) if _rescheduled(write) else None for write in writes]
    await check_schedules(connection, resolved, tenant=tenant, now_ms=now_ms)
    keys = {when.key for when in resolved if when is not None and when.key is not None}
    interned = await schedules.intern_schedules(connection, keys=keys) if keys else {}
    line_specs = [line_of(write.spec, job_id=job_id) for write, job_id in zip(writes, ids, strict=True)]
    line_refs = await lines.intern_lines(connection, tenant=tenant, specs=line_specs)
    rows = [
        WrittenJob(
            job_id=job_id,
            version=1 if write.before is None else write.before.version + 1,
            spec=write.spec,
            change=bumped[shard_of(job_id)][0],
            at=_placement(write, when, None if when is None or when.key is None else interned[when.key], line),
            exceeds=over,
            rescheduled=write.before is not None and _rescheduled(write),
        )
        for write, job_id, when, over, line in zip(writes, ids, resolved, exceeds, line_refs, strict=True)
    ]
    await _write_rows(connection, writes, rows, tenant=tenant, by=by, active_from=instant(now_ms))
    await _write_notifications(connection, writes, rows, tenant=tenant)
    watermarks = {shard: watermark_ms for shard, (_, watermark_ms) in bumped.items()}
    await _write_fires(connection, writes, rows, resolved, watermarks, tenant=tenant, by=by, now=instant(now_ms))
    await _record(connection, writes, rows, tenant=tenant, by=by)
    return [WrittenVersion(row.job_id, row.version) for row in rows]


async def _as_locked(connection: Connection, writes: Sequence[JobWrite], *, tenant: int) -> list[JobWrite]:
    """Read the edited jobs again: a calendar may have moved them to another schedule. Pauses stay as they are."""
    names = [write.spec.name for write in writes if write.before is not None]
    found = await jobs.jobs_by_names(connection, tenant=tenant, names=names) if names else {}
    locked = []
    for write in writes:
        if write.before is None:
            locked.append(write)
            continue
        row, exceeds = found.get(write.spec.name, (None, False))
        if row is None or (row.job_id, row.version) != (write.before.job_id, write.before.version):
            raise changed_meanwhile(write.spec.name)
        spec = msgspec.structs.replace(write.spec, paused=row.paused_at is not None)
        locked.append(JobWrite(spec, row, exceeds, write.needs))
    return locked


def changed_meanwhile(name: str) -> Conflict:
    return Conflict(f"{name!r} changed in the meantime", code="version_changed")


async def _write_rows(
    connection: Connection,
    writes: Sequence[JobWrite],
    rows: Sequence[WrittenJob],
    *,
    tenant: int,
    by: str,
    active_from: datetime,
) -> None:
    fresh = [row for write, row in zip(writes, rows, strict=True) if write.before is None]
    edited = [row for write, row in zip(writes, rows, strict=True) if write.before is not None]
    for part in _parts(fresh):
        await jobs.insert_jobs(connection, tenant=tenant, rows=part, active_from=active_from)
    for part in _parts(edited):
        written = await jobs.update_jobs(connection, tenant=tenant, rows=part, active_from=active_from)
        if gone := [row.spec.name for row in part if row.job_id not in written]:
            raise changed_meanwhile(gone[0])
    for part in _parts(rows):
        await jobs.insert_versions(connection, tenant=tenant, rows=part, created_by=by)


async def _write_notifications(
    connection: Connection, writes: Sequence[JobWrite], rows: Sequence[WrittenJob], *, tenant: int
) -> None:
    changed = {
        row.job_id: row.spec
        for write, row in zip(writes, rows, strict=True)
        if row.spec.notify != (() if write.before is None else write.before.spec.notify)
    }
    wanted = sorted({name for spec in changed.values() for entry in spec.notify for name in entry.to})
    known = await channels.known_channels(connection, tenant=tenant, names=wanted) if wanted else set()
    if missing := [name for name in wanted if name not in known]:
        raise Conflict(f"there is no channel {missing[0]!r} any more", code="unknown_channel")
    if changed:
        found = {job_id: spec.notifications for job_id, spec in changed.items()}
        await channels.replace_notifications_of_jobs(connection, tenant=tenant, rows=found)


async def _write_fires(
    connection: Connection,
    writes: Sequence[JobWrite],
    rows: Sequence[WrittenJob],
    resolved: Sequence[Resolved | None],
    watermarks: Mapping[int, int],
    *,
    tenant: int,
    by: str,
    now: datetime,
) -> None:
    """Cancel and record fires of old schedules; add those of one-time schedules."""
    moved = [row.job_id for row in rows if row.rescheduled]
    if moved:
        await executions.cancel_pending_fires(connection, tenant=tenant, job_ids=moved, reason="rescheduled")
    new, held = [], []
    for write, row, when in zip(writes, rows, resolved, strict=True):
        if write.before is not None and row.rescheduled:
            watermark_ms = watermarks[shard_of(row.job_id)]
            await record_withdrawn(connection, write.before, watermark_ms=watermark_ms, upto=now, reason="rescheduled")
        if when is not None and when.at_ms is not None:
            fire_id = execution_id(row.job_id, when.at_ms, fire_key(when.at_ms))
            new.append(executions.NewExecution(fire_id, row.job_id, "fire", instant(when.at_ms)))
            if row.spec.paused if write.before is None else write.before.paused_at is not None:
                held.append(row.job_id)
    for part in _parts(new):
        await executions.insert_executions(connection, tenant=tenant, new=part, created_by=by)
    for job_id in held:
        await executions.hold_fires(connection, tenant=tenant, job_id=job_id)


async def _record(
    connection: Connection, writes: Sequence[JobWrite], rows: Sequence[WrittenJob], *, tenant: int, by: str
) -> None:
    created, edited = [], []
    for write, row in zip(writes, rows, strict=True):
        if write.before is None:
            created.append(AuditSubject(str(row.job_id), row.spec.name, allowed_plaintext(row.spec) or None))
        else:
            changed = recorded_changes(write.before.spec, row.spec)
            details = {"version": row.version} | changed | allowed_plaintext(row.spec)
            edited.append(AuditSubject(str(row.job_id), row.spec.name, details))
    await audit.record_all(connection, "job.create", created, tenant=tenant, by=by)
    await audit.record_all(connection, "job.edit", edited, tenant=tenant, by=by)


def _rescheduled(write: JobWrite) -> bool:
    """Whether the schedule is new. A job is never renamed here, so `H` keeps its values."""
    return write.before is None or write.before.spec.schedule != write.spec.schedule


def _refuse_one_time_with_needs(write: JobWrite, when: Resolved | None) -> None:
    """`when` is the new schedule; None: as before, or none."""
    before = write.before
    needs = write.needs if write.needs is not None else before is not None and before.needs
    kept = before is not None and not _rescheduled(write) and before.spec.schedule is not None
    if needs and (when.key is None if when is not None else kept and before is not None and before.schedule_id is None):
        message = "a job that needs others can't have a one-time schedule"
        raise invalid("/schedule", message, hint="remove its needs first")


def _placement(write: JobWrite, when: Resolved | None, schedule_id: int | None, line: LineRef) -> Placement:
    found, before = placement(write.spec, when, schedule_id, line), write.before
    if before is None or _rescheduled(write):
        return found
    # An interval keeps its phase, and a start or end in the past is no reason to refuse.
    return replace(
        found,
        schedule_id=before.schedule_id,
        start_at=before.start_at,
        end_at=before.end_at,
        jitter_ms=before.jitter_ms,
        finish_by_s=finish_by_s(write.spec, before.schedule_key, before.start_at),
        calendars=before.calendars,
    )


class _SharedChecks:
    """Checks against queues and plug-ins, which jobs of the same kind, queue and timeout share."""

    def __init__(self, connection: Connection, *, tenant: int, may_exceed: bool) -> None:
        self._connection = connection
        self._tenant = tenant
        self._may_exceed = may_exceed
        self._isolated: dict[tuple[str, str], MainspringError | None] = {}
        self._bounds: dict[tuple[Any, str], bool] = {}

    async def exceeds(self, write: JobWrite) -> bool:
        """Whether the timeout exceeds the queue's bound, with permission; raises Invalid without."""
        spec, before = write.spec, write.before
        await check_settings(self._connection, spec, tenant=self._tenant)
        await self._check_isolation(spec)
        check_plaintext(spec, None if before is None else before.spec)
        await check_references(self._connection, spec, tenant=self._tenant)
        if before is not None and (before.spec.timeout, before.spec.queue_name) == (spec.timeout, spec.queue_name):
            return spec.timeout is not None and write.exceeds_before
        key = (spec.timeout, spec.queue_name)
        if key not in self._bounds:
            found = await exceeds_bound(self._connection, spec, tenant=self._tenant, may_exceed=self._may_exceed)
            if found and not self._may_exceed:  # by an approved request, which is for this job only
                return True
            self._bounds[key] = found
        return self._bounds[key]

    async def _check_isolation(self, spec: JobSpec) -> None:
        key = (spec.kind, spec.queue_name)
        if key not in self._isolated:
            try:
                await check_isolation(self._connection, spec, tenant=self._tenant)
                self._isolated[key] = None
            except Invalid as error:
                self._isolated[key] = error
        if (found := self._isolated[key]) is not None:
            raise found


def _parts(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return [rows[n : n + ROWS] for n in range(0, len(rows), ROWS)]

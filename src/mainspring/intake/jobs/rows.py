"""What creating, editing, pausing and deleting a job have in common: its row, placement, one-time fire, conflicts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.duration import optional_seconds, parse_duration
from mainspring.domain.errors import Conflict, MainspringError, NotFound, Problem, invalid
from mainspring.domain.execution import execution_id, fire_key
from mainspring.domain.flexible import read_window, window_key
from mainspring.domain.job import JobSpec, WorkflowTask
from mainspring.domain.placement.line import keyed, line_of
from mainspring.domain.schedule.schedule import Resolved, calendars_of, compile_key, job_seed, zone_of
from mainspring.store import executions, jobs, lines, schedules
from mainspring.store.db import Connection
from mainspring.store.lines import LineRef
from mainspring.views.schedules import resolve

SYSTEM = "the system"
ANY_WEEK_MS: Final = 1_768_176_000_000
"""In January, when few zones change their clocks: windows that end at a wall time have their usual length."""
FIRES_EXAMINED = 50


def action_on(spec: JobSpec, verb: str) -> str:
    """The audit action: users see a workflow as a workflow, though it is stored as a job."""
    return f"{'workflow' if isinstance(spec.task, WorkflowTask) else 'job'}.{verb}"


def allowed_plaintext(spec: JobSpec) -> dict[str, Any]:
    """The audit details of values that look like secrets and that the author says are none."""
    return {"allow_plaintext": list(spec.allow_plaintext)} if spec.allow_plaintext else {}


async def job_row(connection: Connection, *, tenant: int, job_id: UUID) -> jobs.JobRow:
    row = await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


async def lock_job(connection: Connection, *, tenant: int, job_id: UUID) -> tuple[int, JobSpec, bool, bool]:
    """Version, spec, whether it is paused, whether it may exceed its queue's bound; locked until commit."""
    found = await jobs.lock_job(connection, tenant=tenant, job_id=job_id)
    if found is None:
        raise NotFound(f"there is no job {job_id}")
    return found


async def resolve_schedule(connection: Connection, spec: JobSpec, *, tenant: int, now_ms: int) -> Resolved | None:
    if spec.schedule is None:
        return None
    return await resolve(connection, spec.schedule, tenant=tenant, now_ms=now_ms, seed=job_seed(tenant, spec.name))


async def placement_of(
    connection: Connection, spec: JobSpec, when: Resolved | None, *, tenant: int, job_id: UUID
) -> jobs.Placement:
    """The columns that the scheduler and the dispatcher read; interns the schedule and the line."""
    key = when.key if when is not None else None
    (line,) = await lines.intern_lines(connection, tenant=tenant, specs=[line_of(spec, job_id=job_id)])
    schedule_id = None if key is None else await schedules.intern_schedule(connection, key=key)
    return placement(spec, when, schedule_id, line)


def placement(spec: JobSpec, when: Resolved | None, schedule_id: int | None, line: LineRef) -> jobs.Placement:
    """The columns of a job whose schedule and line are interned."""
    key = None if when is None else when.key
    start_at = None if when is None or when.start_ms is None else instant(when.start_ms)
    return jobs.Placement(
        schedule_id=schedule_id,
        start_at=start_at,
        end_at=None if when is None or when.end_ms is None else instant(when.end_ms),
        queue=spec.queue_name,
        priority=spec.priority,
        overlap=spec.overlap_policy,
        misfire=spec.misfire.policy,
        misfire_s=parse_duration(spec.misfire.window),
        misfire_most=spec.misfire.max,
        pause_after=spec.pause_after_failures,
        start_by_s=optional_seconds(spec.start_by),
        finish_by_s=finish_by_s(spec, key, start_at),
        max_gap_s=optional_seconds(spec.max_gap),
        jitter_ms=when.jitter_ms or None if when is not None else None,
        calendars=calendars_of(spec.schedule) or None,
        line=line,
        keyed=keyed(spec),
        flexible=_window(spec),
    )


def _window(spec: JobSpec) -> str | None:
    """The window of a flexible job, with the duration that its author expects."""
    if spec.flexible is None:
        return None
    wanted = spec.flexible
    if wanted.takes is None and spec.estimated_duration not in (None, "short", "long"):
        wanted = msgspec.structs.replace(wanted, takes=spec.estimated_duration)
    return window_key(wanted, zone_of(spec.schedule))


def finish_by_s(spec: JobSpec, key: str | None, start_at: datetime | None) -> float | None:
    """How long after each fire a success is expected: as the job says, or until the end of the longest window."""
    window = _window(spec)
    if spec.finish_by is not None or window is None or key is None:
        return optional_seconds(spec.finish_by)
    known = read_window(window)
    if known.within_s is not None:
        return known.within_s
    fires = compile_key(key).between(ANY_WEEK_MS if start_at is None else millis(start_at) - 1, LAST_MS, FIRES_EXAMINED)
    return max(((known.end_ms(at) - at) / 1000 for at in fires), default=None)


async def add_one_time_fire(
    connection: Connection, when: Resolved | None, *, tenant: int, job_id: UUID, by: str, held: bool
) -> None:
    """Insert the waiting execution of a one-time schedule; `held` while the job is paused."""
    if when is None or when.at_ms is None:
        return
    fire = executions.NewExecution(
        execution_id(job_id, when.at_ms, fire_key(when.at_ms)), job_id, "fire", instant(when.at_ms)
    )
    await executions.insert_executions(connection, tenant=tenant, new=[fire], created_by=by)
    if held:
        await executions.hold_fires(connection, tenant=tenant, job_id=job_id)


def refuse_workflow(spec: JobSpec) -> None:
    if isinstance(spec.task, WorkflowTask):
        hint = "use mainspring workflows apply, or workflows rollback"
        raise invalid("/task/kind", "a workflow can't be written as a job", hint=hint)


def version_conflict(seen: int, version: int) -> MainspringError:
    message = f"the job has version {version} by now; this change was made for version {seen}"
    return Conflict(
        message,
        code="version_changed",
        problems=(Problem("/version", message, "read the job again, then repeat the change"),),
    )


def name_taken(name: str) -> MainspringError:
    return Conflict(
        f"there is a job {name!r} already",
        code="name_taken",
        problems=(Problem("/name", f"{name!r} is taken", "choose another name, or change that job instead"),),
    )

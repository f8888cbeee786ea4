"""Jobs and their immutable versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.duration import parse_duration
from mainspring.domain.job import TIMEOUT_S, Definition, JobSpec
from mainspring.domain.placement.resources import parse_amounts
from mainspring.domain.secret_use import uses_secrets
from mainspring.ids import shard_of
from mainspring.store.db import Connection, json_array
from mainspring.store.lines import LineRef
from mainspring.store.queries import q
from mainspring.zones import rules_version

MANY_JOBS = 20_000
"""Above this number of jobs of a tenant, distinct schedules are found by walking the index."""
WALKED_SCHEDULES = 5_000
RECENT = (timedelta(days=2), timedelta(days=8))
"""Of the history, so many days are read first for the latest executions; and then, if they are not enough."""
AHEAD = timedelta(hours=1)
"""No execution ended later than now; the margin is for a clock that was read a moment ago."""
MAX_SIMILAR_NAMES = 500
AFTER_ANY_NAME = "\U0010ffff"
"""Sorts after every character of a name."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with its current version and schedule."""

    job_id: UUID
    tenant: int
    name: str
    version: int
    shard: int
    schedule_id: int | None
    schedule_key: str | None
    active_from: datetime
    start_at: datetime | None
    end_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None
    paused_until: datetime | None
    deleted_at: datetime | None
    created_at: datetime
    updated_at: datetime
    created_by: str
    spec: JobSpec
    jitter_ms: int | None
    calendars: list[str] | None
    needs: bool = False
    declared_version: int | None = None
    flexible: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The columns of a job that hot-path statements read; the rest is in its version."""

    schedule_id: int | None
    start_at: datetime | None
    end_at: datetime | None
    queue: str
    priority: int
    overlap: str
    misfire: str
    misfire_s: float
    misfire_most: int
    line: LineRef
    keyed: bool
    pause_after: int | None = None
    start_by_s: float | None = None
    finish_by_s: float | None = None
    max_gap_s: float | None = None
    jitter_ms: int | None = None
    calendars: list[str] | None = None
    flexible: str | None = None


async def insert_job(
    connection: Connection,
    *,
    tenant: int,
    job_id: UUID,
    name: str,
    shard: int,
    change: int,
    at: Placement,
    paused: bool,
    active_from: datetime,
) -> None:
    await connection.execute(
        q("insert_job"),
        job_id,
        tenant,
        name,
        shard,
        change,
        at.schedule_id,
        at.start_at,
        at.end_at,
        at.queue,
        at.priority,
        at.overlap,
        at.misfire,
        paused,
        at.misfire_s,
        at.misfire_most,
        at.pause_after,
        at.start_by_s,
        at.finish_by_s,
        at.max_gap_s,
        at.jitter_ms,
        at.calendars,
        active_from,
        at.line.line_id,
        at.line.limit_id,
        at.keyed,
        at.flexible,
    )


@dataclass(frozen=True, slots=True)
class WrittenJob:
    """One of many jobs to write: a new one, or the next version of an existing one."""

    job_id: UUID
    version: int
    spec: JobSpec
    change: int
    at: Placement
    exceeds: bool = False
    rescheduled: bool = False


def _placements(rows: Sequence[WrittenJob]) -> list[list[Any]]:
    """The columns of placements, in the order of insert_jobs and update_jobs."""
    places = [row.at for row in rows]
    return [
        [at.schedule_id for at in places],
        [at.start_at for at in places],
        [at.end_at for at in places],
        [at.queue for at in places],
        [at.priority for at in places],
        [at.overlap for at in places],
        [at.misfire for at in places],
        [at.misfire_s for at in places],
        [at.misfire_most for at in places],
        [at.pause_after for at in places],
        [at.start_by_s for at in places],
        [at.finish_by_s for at in places],
        [at.max_gap_s for at in places],
        [at.jitter_ms for at in places],
        json_array(at.calendars for at in places),
        [at.line.line_id for at in places],
        [at.line.limit_id for at in places],
        [at.keyed for at in places],
        [at.flexible for at in places],
    ]


async def insert_jobs(
    connection: Connection, *, tenant: int, rows: Sequence[WrittenJob], active_from: datetime
) -> None:
    """Insert new jobs; `insert_versions` writes their definitions."""
    await connection.execute(
        q("insert_jobs"),
        tenant,
        active_from,
        [row.job_id for row in rows],
        [row.spec.name for row in rows],
        [shard_of(row.job_id) for row in rows],
        [row.change for row in rows],
        [row.spec.paused for row in rows],
        *_placements(rows),
    )


async def update_jobs(
    connection: Connection, *, tenant: int, rows: Sequence[WrittenJob], active_from: datetime
) -> set[UUID]:
    """Write new versions; return the jobs whose version was still the one before."""
    found = await connection.fetch(
        q("update_jobs"),
        tenant,
        active_from,
        [row.job_id for row in rows],
        [row.version - 1 for row in rows],
        [row.rescheduled for row in rows],
        [row.change for row in rows],
        *_placements(rows),
    )
    return {r["job_id"] for r in found}


async def insert_versions(connection: Connection, *, tenant: int, rows: Sequence[WrittenJob], created_by: str) -> None:
    await connection.execute(
        q("insert_versions"),
        tenant,
        created_by,
        rules_version(),
        [row.job_id for row in rows],
        [row.version for row in rows],
        [stored_fields(row.spec) for row in rows],
        [row.exceeds for row in rows],
        [bool(row.spec.preemptible) for row in rows],
    )


async def insert_version(
    connection: Connection,
    *,
    tenant: int,
    job_id: UUID,
    version: int,
    spec: JobSpec,
    created_by: str,
    exceeds: bool = False,
) -> None:
    await connection.execute(
        q("insert_version"),
        job_id,
        version,
        tenant,
        stored_fields(spec),
        created_by,
        rules_version(),
        exceeds,
        bool(spec.preemptible),
    )


_LISTS = {field.name for field in msgspec.structs.fields(JobSpec) if field.default == ()}
"""Fields that are empty lists unless they are set."""


def stored_fields(spec: JobSpec) -> dict[str, Any]:
    """The fields of a definition that are set. Unset ones are not stored, so that the previous release can read it."""
    fields = msgspec.to_builtins(spec)
    return {name: value for name, value in fields.items() if value is not None and (value or name not in _LISTS)}


async def lock_job(connection: Connection, *, tenant: int, job_id: UUID) -> tuple[int, JobSpec, bool, bool] | None:
    """Version, spec, whether it is paused, whether it may exceed its queue's bound; None if it was deleted."""
    row = await connection.fetchrow(q("lock_job"), job_id, tenant)
    if row is None or row["deleted_at"] is not None:
        return None
    return row["version"], _spec(row["spec"]), row["paused_at"] is not None, row["exceeds"]


async def update_job(
    connection: Connection,
    *,
    tenant: int,
    job_id: UUID,
    version: int,
    name: str,
    change: int,
    at: Placement,
    rescheduled: bool,
    paused: bool,
    resumed: bool,
    active_from: datetime,
) -> tuple[int, datetime | None]:
    """Write a new version; return its number, and the instant up to which old fires must be recorded, if any."""
    row = await connection.fetchrow(
        q("update_job"),
        job_id,
        tenant,
        version,
        name,
        change,
        at.schedule_id,
        at.start_at,
        at.end_at,
        at.queue,
        at.priority,
        at.overlap,
        at.misfire,
        rescheduled,
        paused,
        at.misfire_s,
        at.misfire_most,
        at.pause_after,
        at.start_by_s,
        at.finish_by_s,
        at.max_gap_s,
        at.jitter_ms,
        at.calendars,
        active_from,
        at.line.line_id,
        at.line.limit_id,
        at.keyed,
        at.flexible,
    )
    assert row is not None, "the caller has locked the job's row"
    return row["version"], row["active_from"] if rescheduled or resumed else row["paused_at"]


async def pause_job(
    connection: Connection, *, tenant: int, job_id: UUID, change: int, reason: str, until: datetime | None = None
) -> datetime | None:
    """When the pause began; None if the job was already paused."""
    paused_at: datetime | None = await connection.fetchval(
        q("pause_job"), job_id, tenant, change, reason or None, until
    )
    return paused_at


async def update_pause(
    connection: Connection, *, tenant: int, job_id: UUID, reason: str, until: datetime | None
) -> None:
    await connection.execute(q("update_pause"), job_id, tenant, reason or None, until)


async def resume_job(
    connection: Connection, *, tenant: int, job_id: UUID, change: int, if_over: bool = False
) -> datetime | None:
    """From when on it fires again; None if it was not paused, or its pause has not ended."""
    active_from: datetime | None = await connection.fetchval(q("resume_job"), job_id, tenant, change, if_over)
    return active_from


async def delete_job(connection: Connection, *, tenant: int, job_id: UUID, change: int) -> datetime | None:
    """When it was deleted; None if it already was."""
    deleted_at: datetime | None = await connection.fetchval(q("delete_job"), job_id, tenant, change)
    return deleted_at


async def job_by_id(connection: Connection, *, tenant: int, job_id: UUID) -> JobRow | None:
    row = await connection.fetchrow(q("job_by_id"), job_id, tenant)
    return None if row is None else job_row(row)


async def deleted_job_by_name(connection: Connection, *, tenant: int, name: str) -> JobRow | None:
    row = await connection.fetchrow(q("deleted_job_by_name"), name, tenant)
    return None if row is None else job_row(row)


async def job_by_name(connection: Connection, *, tenant: int, name: str) -> JobRow | None:
    row = await connection.fetchrow(q("job_by_name"), name, tenant)
    return None if row is None else job_row(row)


async def jobs_by_names(connection: Connection, *, tenant: int, names: Sequence[str]) -> dict[str, tuple[JobRow, bool]]:
    """Jobs by name, each with whether it may exceed its queue's bound."""
    rows = await connection.fetch(q("jobs_by_names"), tenant, list(names))
    return {r["name"]: (job_row(r), r["exceeds"]) for r in rows}


async def jobs_of_name(connection: Connection, *, tenant: int, name: str, deleted: int) -> list[UUID]:
    """The job of that name, if there is one, and the latest `deleted` ones that had it."""
    return [r["job_id"] for r in await connection.fetch(q("jobs_of_name"), name, tenant, deleted)]


async def similar_names(connection: Connection, *, tenant: int, name: str) -> list[str]:
    """Return names of jobs among which a mistyped name may be."""
    first, past = name_range([name[:1]])
    return [r["name"] for r in await connection.fetch(q("similar_names"), tenant, first, past, MAX_SIMILAR_NAMES)]


async def mark_declared(connection: Connection, *, tenant: int, job_id: UUID, version: int) -> None:
    await connection.execute(q("mark_declared"), job_id, tenant, version)


async def list_jobs(
    connection: Connection, *, tenant: int, after: str, limit: int, prefix: str | None = None
) -> list[JobRow]:
    first, past = name_range([prefix] if prefix else [])
    return [job_row(r) for r in await connection.fetch(q("list_jobs"), tenant, after, limit, first, past)]


def name_range(prefixes: Sequence[str]) -> tuple[str, str]:
    """A range [first, past) that contains every name with one of these prefixes; all names without prefixes."""
    return min(prefixes, default=""), max((prefix + AFTER_ANY_NAME for prefix in prefixes), default=AFTER_ANY_NAME)


async def last_executions(
    connection: Connection, *, tenant: int, job_ids: Sequence[UUID], now: datetime
) -> dict[UUID, list[wire.LastExecution]]:
    """Return the latest 20 executions of each job, newest first."""
    found: dict[UUID, list[wire.LastExecution]] = {job_id: [] for job_id in job_ids}
    recent = [*(now - days for days in RECENT), now + AHEAD]
    if len(job_ids) == 1:
        rows = await connection.fetch(q("last_executions_of_job"), tenant, job_ids[0], *recent)
    else:
        rows = await connection.fetch(q("last_executions"), tenant, list(job_ids), *recent)
    for job_id, execution_id, state, fire_at, finished_at, duration_ms in rows:
        found[job_id].append(
            wire.LastExecution(
                execution_id=execution_id,
                state=state,
                fire_at=fire_at,
                finished_at=finished_at,
                duration_ms=duration_ms,
            )
        )
    return found


async def definitions(
    connection: Connection, *, versions: Sequence[tuple[UUID, int]]
) -> dict[tuple[UUID, int], Definition]:
    """Definitions by (job, version). The versions come from executions already claimed for their tenant."""
    rows = await connection.fetch(q("definitions"), [v[0] for v in versions], [v[1] for v in versions])
    return {
        (r["job_id"], r["version"]): definition(_spec(r["spec"]), exceeds=r["exceeds"], shard=shard_of(r["job_id"]))
        for r in rows
    }


async def list_versions(
    connection: Connection, *, tenant: int, job_id: UUID, before: int, limit: int
) -> list[tuple[int, JobSpec, datetime, str, str | None]]:
    rows = await connection.fetch(q("list_versions"), job_id, tenant, before, limit)
    return [(r["version"], _spec(r["spec"]), r["created_at"], r["created_by"], r["tzdata"]) for r in rows]


async def find_jobs(
    connection: Connection, *, tenant: int, names: Sequence[str], job_ids: Sequence[UUID]
) -> dict[str, tuple[UUID, int]]:
    """Ids and versions by name and by id as text."""
    rows = await connection.fetch(q("find_jobs"), tenant, names, job_ids)
    found = {r["name"]: (r["job_id"], r["version"]) for r in rows}
    return found | {str(job_id): (job_id, version) for job_id, version in found.values()}


async def tenant_schedules(connection: Connection, *, tenant: int, limit: int) -> list[tuple[int, str]]:
    """The distinct schedules of active jobs, by id and key."""
    if await connection.fetchval(q("has_many_jobs"), tenant, MANY_JOBS):
        rows = await connection.fetch(q("walked_schedules"), tenant, limit, WALKED_SCHEDULES)
    else:
        rows = await connection.fetch(q("tenant_schedules"), tenant, limit)
    return [(r["schedule_id"], r["key"]) for r in rows]


async def estimated_jobs(connection: Connection) -> float:
    """Estimated number of jobs over all tenants; reveals nothing about a single tenant."""
    return float(await connection.fetchval(q("estimated_jobs")))


async def schedule_loads(
    connection: Connection, *, tenant: int, limit: int, percent: float, by_queue: bool = False
) -> list[tuple[int, str, datetime | None, datetime | None, str, int]]:
    """Schedule, key, start, end, queue and number of jobs that share them, from a sample of `percent` of all jobs.

    Without `by_queue`, the queue is empty.
    """
    rows = await connection.fetch(q("schedule_loads"), tenant, limit, percent, by_queue)
    return [(r["schedule_id"], r["key"], r["start_at"], r["end_at"], r["queue"], r["jobs"]) for r in rows]


async def jobs_on_schedules(
    connection: Connection, *, tenant: int, schedule_ids: Sequence[int], each: int
) -> list[tuple[int, UUID, str, str]]:
    """Return schedule, job, name and queue."""
    rows = await connection.fetch(q("jobs_on_schedules"), tenant, list(schedule_ids), each)
    return [(r["schedule_id"], r["job_id"], r["name"], r["queue"]) for r in rows]


async def keyed_specs(connection: Connection, *, tenant: int, job_ids: Sequence[UUID]) -> dict[UUID, JobSpec]:
    """Definitions of the jobs whose executions get their line by params."""
    return {r["job_id"]: _spec(r["spec"]) for r in await connection.fetch(q("keyed_specs"), tenant, job_ids)}


def definition(spec: JobSpec, *, exceeds: bool = False, shard: int | None = None) -> Definition:
    return Definition(
        name=spec.name,
        task=spec.task,
        timeout_s=TIMEOUT_S if spec.timeout is None else parse_duration(spec.timeout),
        timed=spec.timeout is not None,
        exceeds=exceeds,
        retries=spec.retries,
        delivery=spec.delivery,
        params=spec.params,
        timezone=getattr(spec.schedule, "timezone", None),
        resources=parse_amounts(spec.resources),
        sandbox=spec.sandbox,
        exclusive=spec.exclusive,
        artifacts_in=spec.artifacts_in,
        estimated_duration=spec.estimated_duration,
        shard=shard,
        allow_plaintext=spec.allow_plaintext,
        secrets=uses_secrets(spec.task, spec.params),
    )


def _spec(raw: Any) -> JobSpec:
    return msgspec.convert(raw, JobSpec)


def job_row(row: Any) -> JobRow:
    """A row of a query that joins the current version and the schedule."""
    return JobRow(
        job_id=row["job_id"],
        tenant=row["tenant_id"],
        name=row["name"],
        version=row["version"],
        shard=row["shard"],
        schedule_id=row["schedule_id"],
        schedule_key=row["schedule_key"],
        active_from=row["active_from"],
        start_at=row["start_at"],
        end_at=row["end_at"],
        paused_at=row["paused_at"],
        pause_reason=row["pause_reason"],
        paused_until=row["paused_until"],
        deleted_at=row["deleted_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        created_by=row["created_by"],
        spec=_spec(row["spec"]),
        jitter_ms=row["jitter_ms"],
        calendars=row["calendars"],
        needs=row["needs"],
        declared_version=row["declared_version"],
        flexible=row["flexible"],
    )


async def job_counts(connection: Connection, *, tenant: int) -> tuple[int, int]:
    """Return the number of jobs, and of paused jobs."""
    row = await connection.fetchrow(q("job_counts"), tenant)
    assert row is not None
    return row["jobs"], row["paused"]

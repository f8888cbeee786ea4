"""Jobs with their next fire, last executions and deadlines; their versions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import NotFound
from mainspring.domain.execution import LIVE
from mainspring.domain.job import NAME, JobSpec
from mainspring.domain.schedule.budget import REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.deadline import DeadlineStatus
from mainspring.domain.schedule.schedule import ScheduleSpecs, describe_spec, job_seed
from mainspring.domain.task import PythonTask
from mainspring.store import deadlines, jobs, search
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views.fires import fires_once, next_fire
from mainspring.views.refs import bad_cursor, check_limit, known_job, number_cursor, past_job

MAX_REMEMBERED = 300
"""Bytes of a schedule whose description is remembered."""
MAX_COUNTED = 10_000
"""Statistics count at most so many executions of a job."""


async def get(database: Database, ref: str, *, tenant: int) -> wire.Job:
    async with database.reading() as connection:
        row = await known_job(connection, ref, tenant=tenant)
        return (await as_jobs(connection, [row], tenant=tenant))[0]


async def list_jobs(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50, prefix: str | None = None
) -> wire.Page[wire.Job]:
    """Jobs by name."""
    check_limit(limit)
    if cursor and not NAME.match(cursor):
        raise bad_cursor()
    if prefix and not NAME.match(prefix):
        return wire.Page(items=[])
    async with database.reading() as connection:
        rows = await jobs.list_jobs(connection, tenant=tenant, after=cursor or "", limit=limit + 1, prefix=prefix)
        page = await as_jobs(connection, rows[:limit], tenant=tenant)
    return wire.Page(items=page, next_cursor=page[-1].name if len(rows) > limit else None)


async def list_versions(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.Version]:
    """All versions of a job, newest first."""
    check_limit(limit)
    row = await past_job(database, ref, tenant=tenant)
    before = number_cursor(cursor) or row.version + 1
    async with database.connection() as connection:
        rows = await jobs.list_versions(connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1)
    page = [
        wire.Version(version=v, spec=spec, created_at=at, created_by=by, tzdata=zones)
        for v, spec, at, by, zones in rows[:limit]
    ]
    return wire.Page(items=page, next_cursor=str(page[-1].version) if len(rows) > limit else None)


async def stats(database: Database, ref: str, *, tenant: int, since_s: float) -> wire.JobStats:
    """Statistics of the executions of a job that ended in the last `since_s` seconds."""
    async with database.connection() as connection:
        row = await known_job(connection, ref, tenant=tenant)
        since = instant(max(0, int(await database_now_ms(connection) - since_s * 1000)))
        found = (
            await search.job_stats(connection, tenant=tenant, job_ids=[row.job_id], since=since, each=MAX_COUNTED)
        )[row.job_id]
    return wire.JobStats(
        job_id=row.job_id,
        job=row.name,
        since_at=since,
        ended=found.ended,
        succeeded=found.succeeded,
        failed=found.ended - found.succeeded,
        skipped=found.skipped,
        success_ratio=found.succeeded / found.ended if found.ended else None,
        p50_ms=found.p50,
        p95_ms=found.p95,
        p99_ms=found.p99,
    )


async def version_of(database: Database, job_id: UUID, version: int, *, tenant: int) -> JobSpec:
    """The definition that a version of a job has."""
    async with database.connection() as connection:
        found = await jobs.list_versions(connection, tenant=tenant, job_id=job_id, before=version + 1, limit=1)
    if not found or found[0][0] != version:
        raise NotFound(f"the job has no version {version}")
    return found[0][1]


async def as_jobs(connection: Connection, rows: Sequence[JobRow], *, tenant: int) -> list[wire.Job]:
    """Add next fire, last executions and deadlines to stored jobs."""
    if not rows:
        return []
    now_ms = int(await database_now_ms(connection))
    last = await jobs.last_executions(
        connection, tenant=tenant, job_ids=[row.job_id for row in rows], now=instant(now_ms)
    )
    judged = await deadlines.judge(connection, rows, tenant=tenant, now_ms=now_ms)
    with steps(REQUEST_STEPS):
        return [_as_job(row, last[row.job_id], judged[row.job_id], now_ms) for row in rows]


def _as_job(row: JobRow, last: list[wire.LastExecution], judged: list[DeadlineStatus], now_ms: int) -> wire.Job:
    following, is_known = None, False
    with suppress(TooCostly):
        following, is_known = _next_fire(row, last, now_ms), True
    state: wire.JobState = "active"
    if row.deleted_at is not None:
        state = "deleted"
    elif row.spec.schedule is not None and is_known and following is None and not any(e.state in LIVE for e in last):
        state = "finished"
    elif row.paused_at is not None:
        state = "paused"
    return wire.Job(
        job_id=row.job_id,
        name=row.name,
        version=row.version,
        state=state,
        spec=row.spec,
        schedule_description=_described(row),
        next_fire_at=following if state == "active" else None,
        last=[e for e in last if e.state != "waiting" or e.fire_at <= instant(now_ms)],
        pause_reason=row.pause_reason,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        paused_at=row.paused_at,
        paused_until=row.paused_until,
        deadlines=[
            wire.Deadline(kind=j.kind, state=j.state, at=None if j.at_ms is None else instant(j.at_ms)) for j in judged
        ],
        declared=_declaration(row),
    )


def _declaration(row: JobRow) -> wire.Declaration | None:
    if row.declared_version is None or not isinstance(row.spec.task, PythonTask):
        return None
    return wire.Declaration(
        function=row.spec.task.function, version=row.declared_version, edited=row.version > row.declared_version
    )


def _described(row: JobRow) -> str | None:
    schedule = row.spec.schedule
    if schedule is None:
        return None
    text = msgspec.json.encode(schedule)
    if len(text) > MAX_REMEMBERED:
        return describe_spec(schedule, seed=job_seed(row.tenant, row.name))
    # Only `H` is read by job: all other jobs with the same schedule share its words.
    return _words(text, job_seed(row.tenant, row.name) if b"H" in text else None)


@lru_cache(10_000)
def _words(schedule: bytes, seed: str | None) -> str:
    """A schedule as words, remembered: of 500 jobs, finding them took 12 ms of the request."""
    return describe_spec(msgspec.json.decode(schedule, type=ScheduleSpecs), seed=seed)


def _next_fire(row: JobRow, last: list[wire.LastExecution], now_ms: int) -> datetime | None:
    if fires_once(row):
        return next((e.fire_at for e in last if e.state == "waiting"), None)
    ahead = next_fire(row, after_ms=now_ms)
    return None if ahead is None else instant(ahead)

"""Deadlines: overdue executions, and jobs that miss a deadline now.

A judgement needs the schedule and the newest success: a few index steps for each job with deadlines, none for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from mainspring.clock import instant, millis, whole_millis
from mainspring.domain.duration import parse_duration
from mainspring.domain.execution import fire_ms_of
from mainspring.domain.schedule.budget import FIRE_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.deadline import DeadlineStatus, Expected, finish_by, max_gap
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow, job_row
from mainspring.store.queries import q


async def skip_overdue(connection: Connection, *, limit: int) -> list[tuple[UUID, UUID | None]]:
    """Skip overdue executions of all tenants; return each with its job if a blocked one may be released."""
    return [(r["execution_id"], r["chained"]) for r in await connection.fetch(q("skip_overdue"), limit)]


async def next_overdue_s(connection: Connection) -> float | None:
    wait_s: float | None = await connection.fetchval(q("next_overdue"))
    return wait_s


async def watched_jobs(connection: Connection, *, tenant: int) -> list[JobRow]:
    return [job_row(r) for r in await connection.fetch(q("watched_jobs"), tenant)]


async def newest_successes(
    connection: Connection, *, tenant: int, since_ms: Sequence[tuple[UUID, int]]
) -> dict[UUID, int]:
    """Return by job the newest instant with a success since the given instant, if any."""
    rows = await connection.fetch(
        q("newest_successes"),
        tenant,
        [job_id for job_id, _ in since_ms],
        [UUID(int=at << 80) for _, at in since_ms],
        [instant(at) for _, at in since_ms],
    )
    return {r["job_id"]: fire_ms_of(r["execution_id"]) for r in rows}


async def last_successes(
    connection: Connection, *, tenant: int, since: Sequence[tuple[UUID, datetime]]
) -> dict[UUID, datetime]:
    rows = await connection.fetch(q("last_successes"), tenant, [job for job, _ in since], [at for _, at in since])
    return {r["job_id"]: r["finished_at"] for r in rows}


async def missed(connection: Connection, *, tenant: int, now_ms: int) -> list[tuple[JobRow, DeadlineStatus]]:
    """Return the active jobs of a tenant that miss a deadline now; when a missed `max_gap` began is not computed."""
    rows = await watched_jobs(connection, tenant=tenant)
    judged = await judge(connection, rows, tenant=tenant, now_ms=now_ms, exact=False)
    return [(row, found) for row in rows for found in judged[row.job_id] if found.state == "missed"]


async def judge(
    connection: Connection, rows: Sequence[JobRow], *, tenant: int, now_ms: int, exact: bool = True
) -> dict[UUID, list[DeadlineStatus]]:
    """Judge every deadline of these jobs; a paused or deleted job has none, nor has one with a too costly schedule."""
    judged: dict[UUID, list[DeadlineStatus]] = {row.job_id: [] for row in rows}
    active = [row for row in rows if row.paused_at is None and row.deleted_at is None]
    with steps(REQUEST_STEPS):
        for job_id, found in await _finish_by(connection, active, tenant, now_ms):
            judged[job_id].append(found)
        for job_id, found in await _max_gap(connection, active, tenant, now_ms, exact):
            judged[job_id].append(found)
    return judged


async def _finish_by(
    connection: Connection, rows: Sequence[JobRow], tenant: int, now_ms: int
) -> list[tuple[UUID, DeadlineStatus]]:
    expected = {r.job_id: (found, _ms(r.spec.finish_by)) for r in rows if r.spec.finish_by and (found := _expected(r))}
    if not expected:
        return []
    since = []
    for job_id, (found, ms) in expected.items():
        with suppress(TooCostly), steps(FIRE_STEPS):
            since.append((job_id, _since(found, ms, now_ms)))
    done = await newest_successes(connection, tenant=tenant, since_ms=since)
    judged = []
    for job_id, _ in since:
        found, ms = expected[job_id]
        with suppress(TooCostly), steps(FIRE_STEPS):
            judged.append((job_id, finish_by(found, ms, now_ms=now_ms, done_ms=done.get(job_id))))
    return judged


async def _max_gap(
    connection: Connection, rows: Sequence[JobRow], tenant: int, now_ms: int, exact: bool
) -> list[tuple[UUID, DeadlineStatus]]:
    gap_ms = {row.job_id: _ms(row.spec.max_gap) for row in rows if row.spec.max_gap}
    watched = [row for row in rows if row.job_id in gap_ms]
    if not watched:
        return []
    recent = [(r.job_id, max(r.active_from, instant(now_ms - gap_ms[r.job_id]))) for r in watched]
    last = await last_successes(connection, tenant=tenant, since=recent)
    older = [(r.job_id, r.active_from) for r in watched if r.job_id not in last]
    if exact and older:
        last |= await last_successes(connection, tenant=tenant, since=older)
    judged = []
    for row in watched:
        with suppress(TooCostly), steps(FIRE_STEPS):
            status = max_gap(
                _expected(row),
                gap_ms[row.job_id],
                now_ms=now_ms,
                active_from_ms=whole_millis(row.active_from),
                succeeded_ms=None if (at := last.get(row.job_id)) is None else millis(at),
            )
            judged.append((row.job_id, status))
    return judged


def _expected(row: JobRow) -> Expected | None:
    if row.schedule_key is None:
        return None
    try:
        schedule = compile_key(row.schedule_key)
    except TooCostly:
        return None
    return Expected(
        schedule,
        whole_millis(row.active_from),
        None if row.start_at is None else millis(row.start_at),
        None if row.end_at is None else millis(row.end_at),
    )


def _since(expected: Expected, finish_ms: int, now_ms: int) -> int:
    """Return the oldest instant whose success can matter."""
    passed = expected.last(now_ms - finish_ms)
    return expected.active_from_ms if passed is None else passed


def _ms(duration: str | int | float | None) -> int:
    return round(parse_duration(duration or 0) * 1000)

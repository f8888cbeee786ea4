"""Search jobs and executions by a filter; every query scans a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mainspring.clock import instant, millis
from mainspring.domain.filter import DELETED, ExecutionFilter, JobFilter
from mainspring.domain.statistics import merged, percentile
from mainspring.store.db import Connection
from mainspring.store.jobs import AHEAD, JobRow, job_row, name_range
from mainspring.store.queries import q

SCAN_LIMIT = 20_000
"""Rows that one query scans at most."""
FAILURES_SCANNED = 2000
QUEUED_SCANNED = 100
"""Queued executions of each line that are read for overdue jobs."""
INDEXED_STATES = frozenset(("failed", "timed_out", "lost", "cancelled", "skipped"))
"""States with an index of their own, which successes never enter."""


@dataclass(frozen=True, slots=True)
class FoundExecutions:
    """Matching executions; `floor` is the last one scanned if the scan limit was reached."""

    ids: list[UUID]
    floor: UUID | None = None


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Matching jobs; `floor` is the last job scanned, as a position to continue after, if there are more."""

    ids: list[UUID]
    floor: str | None = None


async def search_executions(
    connection: Connection,
    wanted: ExecutionFilter,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    scan_limit: int = SCAN_LIMIT,
) -> FoundExecutions:
    query = "search_executions"
    if wanted.states and INDEXED_STATES.issuperset(wanted.states):
        # Without other filters every row of a state matches, so no more than `limit` need to be scanned.
        query = "search_unsuccessful"
        narrow = wanted.queues or wanted.triggers or wanted.by or wanted.ended_ms is not None
        scan_limit = scan_limit if narrow else limit
    row = await connection.fetchrow(
        q(query),
        tenant,
        before,
        limit,
        _since(wanted),
        list(set(wanted.states)) or None,
        wanted.queues or None,
        wanted.triggers or None,
        scan_limit,
        wanted.by or None,
        _ended(wanted),
    )
    assert row is not None
    return FoundExecutions(list(row["found"]), row["floor"])


async def search_executions_of_jobs(
    connection: Connection,
    wanted: ExecutionFilter,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_ids: Sequence[UUID],
    scan_limit: int = SCAN_LIMIT,
) -> FoundExecutions:
    row = await connection.fetchrow(
        q("search_executions_of_jobs"),
        tenant,
        before,
        limit,
        _since(wanted),
        wanted.states or None,
        wanted.queues or None,
        wanted.triggers or None,
        max(limit, scan_limit // max(1, len(job_ids))),
        list(job_ids),
        wanted.by or None,
        _ended(wanted),
    )
    assert row is not None
    return FoundExecutions(list(row["found"]), row["floor"])


async def search_jobs(
    connection: Connection, wanted: JobFilter, *, tenant: int, after: str, limit: int, scan_limit: int = SCAN_LIMIT
) -> FoundJobs:
    """Find jobs after a position: a name, or `name id` of a deleted job."""
    deleted = DELETED in wanted.states
    paused = None if len(wanted.states) != 1 or deleted else wanted.states[0] == "paused"
    name, _, job_id = after.partition(" ")
    row = await connection.fetchrow(
        q("search_deleted_jobs" if deleted else "search_jobs"),
        tenant,
        name,
        limit,
        wanted.texts or None,
        wanted.names or None,
        paused,
        wanted.queues or None,
        wanted.kinds or None,
        dict(wanted.labels) or None,
        scan_limit,
        *name_range(wanted.names),
        wanted.by or None,
        *([UUID(job_id) if job_id else UUID(int=0)] if deleted else []),
    )
    assert row is not None
    return FoundJobs(list(row["found"]), position(row["floor"], row["floor_id"], wanted))


def position(name: str | None, job_id: UUID | None, wanted: JobFilter) -> str | None:
    """The position of a job in the order of `search_jobs`."""
    return name if name is None or DELETED not in wanted.states else f"{name} {job_id}"


async def jobs_by_id(connection: Connection, *, tenant: int, job_ids: Sequence[UUID]) -> list[JobRow]:
    return [job_row(r) for r in await connection.fetch(q("jobs_by_id"), list(job_ids), tenant)]


async def failing_jobs(connection: Connection, *, tenant: int, since: datetime, now: datetime, most: int) -> list[UUID]:
    """Jobs whose latest ended execution failed since an instant, the newest failure first."""
    rows = await connection.fetch(q("failing_jobs"), tenant, FAILURES_SCANNED, since, most, now + AHEAD)
    return [r["job_id"] for r in rows]


@dataclass(frozen=True, slots=True)
class OverdueJob:
    """A job with an execution that waits in a queue, and has never started. The first such one of the job in a line."""

    job_id: UUID
    job: str
    execution_id: UUID
    due_at: datetime
    trigger: str
    line_id: int
    queue: str


async def overdue_jobs(connection: Connection, *, tenant: int, after: timedelta, most: int) -> list[OverdueJob]:
    """Jobs with an execution that has been due for longer than `after`, the longest wait first."""
    rows = await connection.fetch(q("overdue_jobs"), tenant, after, QUEUED_SCANNED, most)
    return [OverdueJob(*r.values()) for r in rows]


@dataclass(frozen=True, slots=True)
class JobStats:
    """Executions that succeeded or failed, and skipped fires; percentiles in milliseconds, of successes."""

    ended: int = 0
    succeeded: int = 0
    skipped: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


async def job_stats(
    connection: Connection, *, tenant: int, job_ids: Sequence[UUID], since: datetime, each: int
) -> dict[UUID, JobStats]:
    """Statistics of each job since an instant, from hourly rollups and at most the latest `each` other executions.

    Percentiles are exact if no rollup was needed.
    """
    lowest = UUID(int=millis(since) << 80)
    found = await connection.fetch(q("job_stats"), tenant, list(job_ids), lowest, since, each)
    by_job: dict[UUID, list[Any]] = {}
    for row in found:
        by_job.setdefault(row["job_id"], []).append(row)
    return {job_id: _stats_of(rows) for job_id, rows in by_job.items()}


def _stats_of(rows: Sequence[Any]) -> JobStats:
    succeeded, failed, skipped = (sum(row[name] for row in rows) for name in ("succeeded", "failed", "skipped"))
    if len(rows) == 1:
        return JobStats(succeeded + failed, succeeded, skipped, *(rows[0]["ms"] or ()))
    counts = merged((row["buckets"], row["counts"]) for row in rows if row["buckets"])
    return JobStats(succeeded + failed, succeeded, skipped, *(percentile(counts, share) for share in (0.5, 0.95, 0.99)))


def _since(wanted: ExecutionFilter) -> UUID:
    """The lowest id of the filter's start: ids begin with their instant."""
    return UUID(int=max(0, wanted.since_ms or 0) << 80)


def _ended(wanted: ExecutionFilter) -> datetime | None:
    return None if wanted.ended_ms is None else instant(wanted.ended_ms)

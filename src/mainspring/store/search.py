"""Which jobs and executions fit a filter: bounded looks, so that no question is too dear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.clock import millis
from mainspring.domain.filter import ExecutionFilter, JobFilter
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow, between, job_row
from mainspring.store.queries import q

LOOKED = 20_000
"""Rows that one look passes over at most."""
EXCEPTIONS = frozenset(("failed", "timed_out", "lost", "cancelled", "skipped"))
"""States that have an index of their own: what simply succeeds never enters it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What fits; and the last one looked at, if there were more than one look takes."""

    ids: list[UUID]
    floor: UUID | None = None


@dataclass(frozen=True, slots=True)
class FoundJobs:
    ids: list[UUID]
    floor: str | None = None


async def look_executions(
    connection: Connection,
    wanted: ExecutionFilter,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    looked: int = LOOKED,
) -> Found:
    query = "look_executions"
    if wanted.states and EXCEPTIONS.issuperset(wanted.states):
        # All of a state fit if nothing else is asked, so there is no need to look at more than are wanted.
        query, looked = "look_exceptions", looked if wanted.queues or wanted.triggers or wanted.by else limit
    row = await connection.fetchrow(
        q(query),
        tenant,
        before,
        limit,
        _since(wanted),
        list(set(wanted.states)) or None,
        wanted.queues or None,
        wanted.triggers or None,
        looked,
        wanted.by or None,
    )
    assert row is not None
    return Found(list(row["found"]), row["floor"])


async def look_executions_of(
    connection: Connection,
    wanted: ExecutionFilter,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_ids: Sequence[UUID],
    looked: int = LOOKED,
) -> Found:
    row = await connection.fetchrow(
        q("look_executions_of"),
        tenant,
        before,
        limit,
        _since(wanted),
        wanted.states or None,
        wanted.queues or None,
        wanted.triggers or None,
        max(limit, looked // max(1, len(job_ids))),
        list(job_ids),
        wanted.by or None,
    )
    assert row is not None
    return Found(list(row["found"]), row["floor"])


async def look_jobs(
    connection: Connection, wanted: JobFilter, *, tenant: int, after: str, limit: int, looked: int = LOOKED
) -> FoundJobs:
    paused = None if len(wanted.states) != 1 else wanted.states[0] == "paused"
    row = await connection.fetchrow(
        q("look_jobs"),
        tenant,
        after,
        limit,
        wanted.texts or None,
        wanted.names or None,
        paused,
        wanted.queues or None,
        wanted.kinds or None,
        dict(wanted.labels) or None,
        looked,
        *between(wanted.names),
        wanted.by or None,
    )
    assert row is not None
    return FoundJobs(list(row["found"]), row["floor"])


async def jobs_by_id(connection: Connection, *, tenant: int, job_ids: Sequence[UUID]) -> list[JobRow]:
    return [job_row(r) for r in await connection.fetch(q("jobs_by_id"), list(job_ids), tenant)]


@dataclass(frozen=True, slots=True)
class Stats:
    """Of executions that ended by themselves; percentiles in milliseconds, of those that succeeded."""

    ended: int = 0
    succeeded: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


async def job_stats(
    connection: Connection, *, tenant: int, job_ids: Sequence[UUID], since: datetime, each: int
) -> dict[UUID, Stats]:
    """Of each job the latest `each` since an instant."""
    lowest = UUID(int=millis(since) << 80)
    rows = await connection.fetch(q("job_stats"), tenant, list(job_ids), lowest, since, each)
    return {r["job_id"]: Stats(r["ended"], r["succeeded"], *(r["ms"] or ())) for r in rows}


def _since(wanted: ExecutionFilter) -> UUID:
    """Ids begin with the instant they stand for."""
    return UUID(int=max(0, wanted.since_ms or 0) << 80)

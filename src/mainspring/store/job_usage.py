"""What attempts used, as their workers measure it: CPU time and peak memory by job and day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from mainspring import wire
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class JobUsageTotals:
    """What the attempts of a job used since a day."""

    attempts: int
    cpu_ms: int
    wall_ms: int
    cores_max: int
    memory_max: int
    since: date


async def add_usage(connection: Connection, *, session_id: UUID, usage: Sequence[wire.JobUsage]) -> None:
    """Add a report. The session decides which jobs it may report of."""
    by_job = {one.job_id: one for one in usage}  # a job twice in one report would be an error of the statement
    rows = list(by_job.values())
    await connection.execute(
        q("add_usage"),
        session_id,
        [one.job_id for one in rows],
        [one.attempts for one in rows],
        [one.cpu_ms for one in rows],
        [one.wall_ms for one in rows],
        [one.cores_max for one in rows],
        [one.memory_max for one in rows],
    )


async def usage_of_job(connection: Connection, *, tenant: int, job_id: UUID, since: date) -> JobUsageTotals | None:
    row = await connection.fetchrow(q("usage_of_job"), job_id, tenant, since)
    return None if row is None else JobUsageTotals(*row.values())


async def duration_buckets(
    connection: Connection, *, tenant: int, job_id: UUID, since: datetime
) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Buckets and counts of a job's successes, hour by hour."""
    rows = await connection.fetch(q("duration_buckets"), job_id, tenant, since)
    return [(row["buckets"], row["counts"]) for row in rows]

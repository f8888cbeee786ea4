"""Hourly statistics of executions by job and queue, added up from history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q

GRACE_S = 10.0
"""Executions are added up this long after they finished: their statement has begun to write by then."""


@dataclass(frozen=True, slots=True)
class RollupProgress:
    """Executions that finished in [first_at, rolled_up_to) are added up; what finished before `ready_to` can be."""

    first_at: datetime
    rolled_up_to: datetime
    ready_to: datetime


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over executions: how they ended, their durations, and their waits from due to start."""

    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    duration_ms: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """Totals of a queue, and how many durations are in which bucket."""

    totals: Totals
    counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class JobTotals:
    """Totals of a job in one queue, and the current definition of the job. `priced_ms`: durations by price factor."""

    job_id: UUID
    job: str
    queue: str
    spec: dict[str, Any]
    totals: Totals
    priced_ms: float


@dataclass(frozen=True, slots=True)
class DemandTotals:
    """Totals of all jobs of a tenant in a queue that request the same resources; `priced_ms` as for a job."""

    tenant: str
    queue: str
    resources: dict[str, Any]
    totals: Totals
    priced_ms: float


async def lock_rollups(connection: Connection, *, grace_s: float = GRACE_S) -> RollupProgress:
    """Lock the progress until the end of the transaction. Over all tenants: a leader duty."""
    row = await connection.fetchrow(q("lock_rollups"), grace_s)
    assert row is not None
    return RollupProgress(row["first_at"], row["rolled_up_to"], row["ready"])


async def restart_rollups(connection: Connection, *, at: datetime) -> None:
    """Give up what is before a full hour, and continue there."""
    await connection.execute(q("restart_rollups"), at)


async def roll_up(connection: Connection, *, since: datetime, until: datetime) -> int:
    """Add what finished in [since, until) to the rollups, in the transaction of `lock_rollups`; return how many."""
    await connection.execute("SET LOCAL enable_seqscan = off")  # statistics know nothing of an expression of a new day
    return int(await connection.fetchval(q("roll_up"), since, until))


async def forget_rollups(connection: Connection, *, after_s: float, limit: int) -> int:
    """Delete old rollups, at most `limit` of jobs; return how many of jobs."""
    return len(await connection.fetch(q("forget_rollups"), after_s, limit))


async def rollup_progress(connection: Connection) -> tuple[datetime, datetime]:
    """Since when, and up to when, history is added up."""
    row = await connection.fetchrow(q("rollup_progress"))
    assert row is not None
    return row["first_at"], row["rolled_up_to"]


async def queue_totals(connection: Connection, *, tenant: int, since: datetime, most: int) -> dict[str, QueueTotals]:
    """Totals by queue of the `most` queues whose executions ran longest in total."""
    rows = await connection.fetch(q("queue_totals"), tenant, since, most)
    return {r["queue"]: QueueTotals(_totals(r), dict(zip(r["buckets"], r["counts"], strict=True))) for r in rows}


Factors = Mapping[datetime, float]
"""The price factor of hours in which it is not 1."""


async def job_totals(
    connection: Connection, *, tenant: int, since: datetime, most: int, factors: Factors
) -> list[JobTotals]:
    """Totals of the jobs that ran longest in total, by queue."""
    rows = await connection.fetch(q("job_totals"), tenant, since, most, [*factors], [*factors.values()])
    return [JobTotals(r["job_id"], r["name"], r["queue"], r["spec"], _totals(r), r["priced_ms"]) for r in rows]


async def mean_durations(
    connection: Connection, *, tenant: int, since: datetime, most: int
) -> dict[tuple[int, str], float]:
    """Mean duration in milliseconds of the executions of each schedule in each queue."""
    rows = await connection.fetch(q("mean_durations"), tenant, since, most)
    return {(r["schedule_id"], r["queue"]): r["mean_ms"] for r in rows}


async def usage_by_demand(
    connection: Connection, *, tenant: int | None, since: datetime, most: int, factors: Factors
) -> list[DemandTotals]:
    """Totals by tenant, queue and requested resources; without `tenant`, of all tenants."""
    rows = await connection.fetch(q("usage_by_demand"), tenant, since, most, [*factors], [*factors.values()])
    return [DemandTotals(r["tenant"], r["queue"], r["resources"], _totals(r), r["priced_ms"]) for r in rows]


def _totals(row: Any) -> Totals:
    return Totals(row["succeeded"], row["failed"], row["cancelled"], row["skipped"], row["duration_ms"], row["wait_ms"])

"""Facts that explain why an execution is not running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.domain.execution import State
from mainspring.domain.placement.demand import Demand, lacks, read_demand
from mainspring.domain.placement.functions import FunctionSet
from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.store.sessions import function_sets, stated_functions


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A live execution with everything that decides when it starts."""

    execution_id: UUID
    job_id: UUID
    job: str
    state: State
    attempt: int
    due_at: datetime
    started_at: datetime | None
    rank: int
    chained: bool
    limit_id: int | None
    rate_id: int
    worker: str | None
    line_id: int | None
    queue: str
    demand: Demand
    now: datetime
    needs_by_at: datetime | None = None
    fire_at: datetime | None = None
    window: str | None = None  # of a flexible job


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker with a live session, as far as it matters for placement."""

    name: str
    state: str
    slots: int
    busy: int
    queues: frozenset[str]
    kinds: frozenset[str]
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    functions: FunctionSet | None = None

    def lacks(self, demand: Demand) -> list[str]:
        """What the worker lacks even when idle, as texts."""
        return lacks(demand, self.kinds, self.labels, self.resources, self.functions)


async def pending_execution(connection: Connection, *, tenant: int, execution_id: UUID) -> PendingRow | None:
    r = await connection.fetchrow(q("pending_execution"), execution_id, tenant)
    if r is None:
        return None
    return PendingRow(
        r["execution_id"],
        r["job_id"],
        r["job_name"],
        r["state"],
        r["attempt"],
        r["due_at"],
        r["started_at"],
        r["rank"],
        r["chained"],
        r["limit_id"],
        r["rate_id"],
        r["worker_name"],
        r["line_id"],
        r["queue"],
        Demand() if r["demand"] is None else read_demand(r["demand"]),
        r["now"],
        r["needs_by_at"],
        r["fire_at"],
        r["flexible"],
    )


async def pending_of_job(connection: Connection, *, tenant: int, job_id: UUID, limit: int) -> list[tuple[UUID, State]]:
    rows = await connection.fetch(q("pending_of_job"), job_id, tenant, limit)
    return [(r["execution_id"], r["state"]) for r in rows]


async def live_sessions(connection: Connection, *, tenant: int, limit: int = 10_000) -> list[LiveWorker]:
    rows = await connection.fetch(q("live_sessions"), tenant, limit)
    sets = await function_sets(connection, rows)
    return [
        LiveWorker(
            r["name"],
            r["state"],
            r["slots"],
            r["busy"],
            frozenset(r["queues"]),
            frozenset(r["kinds"]),
            r["labels"],
            r["resources"],
            stated_functions(r, sets),
        )
        for r in rows
    ]


async def ahead_in_line(
    connection: Connection, *, tenant: int, line_id: int, rank: int, execution_id: UUID, most: int
) -> int:
    return int(await connection.fetchval(q("ahead_in_line"), line_id, rank, execution_id, tenant, most))


async def running_of_queue(connection: Connection, *, tenant: int, queue: str) -> tuple[int, int]:
    """Number of running executions of the queue, and of the tenant."""
    row = await connection.fetchrow(q("running_of_queue"), tenant, queue)
    assert row is not None
    return row["of_queue"], row["of_tenant"]


async def longest_running(connection: Connection, *, tenant: int, workers: Sequence[str], most: int) -> list[UUID]:
    """The executions of a tenant that have run longest on these workers."""
    return [r["execution_id"] for r in await connection.fetch(q("longest_running"), tenant, list(workers), most)]

"""Evictions: attempts asked to end so that an urgent execution can start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import ports
from mainspring.domain.placement.demand import Demand, read_demand
from mainspring.domain.placement.reservation import WorkerCapacity
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q
from mainspring.store.sessions import function_sets, stated_functions


@dataclass(frozen=True, slots=True)
class UrgentExecution:
    """A queued execution near the front of its line; `asked`: it has already preempted."""

    execution_id: UUID
    attempt: int
    line_id: int
    job_id: UUID
    version: int
    priority: int
    rank: int
    waited_s: float
    asked: bool


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A running attempt, with what decides whether it may be evicted."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    tenant: int
    queue: str
    job_id: UUID
    version: int
    priority: int
    ran_s: float
    demand: Demand
    preemptible: bool
    evicted: int  # evictions of this execution so far
    leaving: bool  # this attempt is being evicted


@dataclass(frozen=True, slots=True)
class Eviction:
    execution_id: UUID
    attempt: int
    urgent_id: UUID
    urgent_job: str
    urgent_attempt: int
    asked_at: datetime
    job: str | None
    worker: str | None
    leaving: bool | None


async def any_preemptible(connection: Connection) -> bool:
    """Over all tenants: for dispatchers, which serve every tenant."""
    return bool(await connection.fetchval(q("any_preemptible")))


async def urgent_executions(connection: Connection, *, line_ids: Sequence[int], each: int) -> list[UrgentExecution]:
    """Return the first `each` executions of each line, by priority. Over all tenants: each line names its own."""
    return [UrgentExecution(*r.values()) for r in await connection.fetch(q("urgent_executions"), line_ids, each)]


async def active_workers(connection: Connection) -> list[WorkerCapacity]:
    """Over all tenants: for dispatchers, which serve every tenant."""
    rows = await connection.fetch(q("active_workers"))
    sets = await function_sets(connection, rows)
    return [
        WorkerCapacity(
            r["session_id"],
            r["tenant_id"],
            r["slots"],
            frozenset(r["queues"]),
            frozenset(r["kinds"]),
            r["labels"],
            r["resources"],
            r["shared"],
            frozenset(r["takes"]),
            r["name"],
            stated_functions(r, sets),
        )
        for r in rows
    ]


async def running_attempts(connection: Connection, *, session_ids: Sequence[UUID]) -> list[RunningAttempt]:
    """Over all tenants: a shared session runs attempts of every tenant."""
    return [
        RunningAttempt(
            r["execution_id"],
            r["attempt"],
            r["session_id"],
            r["tenant_id"],
            r["queue"],
            r["job_id"],
            r["version"],
            r["priority"],
            r["ran_s"],
            Demand() if r["demand"] is None else read_demand(r["demand"]),
            r["may"],
            r["evicted"],
            r["leaving"],
        )
        for r in await connection.fetch(q("running_attempts"), session_ids)
    ]


async def evict(
    connection: Connection,
    *,
    tenant: int,
    urgent: tuple[UUID, int],
    session_id: UUID,
    victims: Sequence[tuple[UUID, int]],
) -> bool:
    """Evict all victims or none; return whether it happened. Needs a transaction: rows are locked before the check."""
    ids = [victim for victim, _ in victims]
    await connection.fetch(q("lock_for_eviction"), [urgent[0], *ids], tenant)
    asked = await connection.fetch(q("evict"), *urgent, tenant, session_id, ids, [attempt for _, attempt in victims])
    if asked:
        hint(connection, ports.SETTINGS, str(tenant))
        hint(connection, ports.CANCEL, str(session_id))
    return bool(asked)


async def open_evictions(connection: Connection, *, within_s: float) -> list[tuple[UUID, UUID, Demand, int]]:
    """Return (urgent execution, session, its demand, the session's slots). Over all tenants: for dispatchers."""
    return [
        (r["urgent_id"], r["session_id"], read_demand(r["demand"]), r["slots"])
        for r in await connection.fetch(q("open_evictions"), within_s)
    ]


async def session_preempts(connection: Connection, *, tenant: int, session_id: UUID) -> list[tuple[UUID, int]]:
    rows = await connection.fetch(q("session_preempts"), session_id, tenant)
    return [(r["execution_id"], r["attempt"]) for r in rows]


async def evictions_about(connection: Connection, *, tenant: int, execution_id: UUID, limit: int) -> list[Eviction]:
    return [Eviction(*r.values()) for r in await connection.fetch(q("evictions_about"), execution_id, tenant, limit)]


async def forget_evictions(connection: Connection) -> None:
    """Over all tenants: this is maintenance."""
    await connection.execute(q("forget_evictions"))

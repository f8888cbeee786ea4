"""Attempts that are asked to make room for more urgent executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.domain.placement.demand import Demand, read_demand
from mainspring.domain.placement.reservation import Place
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Head:
    """Near the front of its line."""

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
class Run:
    """An attempt that runs, as far as it matters for who may have its place."""

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
    evicted: int  # so often it made room already
    leaving: bool  # and does so now


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
    """Over all tenants: for dispatchers, which serve them all."""
    return bool(await connection.fetchval(q("any_preemptible")))


async def urgent_heads(connection: Connection, *, line_ids: Sequence[int], each: int) -> list[Head]:
    """Over all tenants: each line says whose it is. The highest priority first."""
    return [Head(*r.values()) for r in await connection.fetch(q("urgent_heads"), line_ids, each)]


async def places(connection: Connection) -> list[Place]:
    """Over all tenants: for dispatchers, which serve them all."""
    return [
        Place(
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
        )
        for r in await connection.fetch(q("places"))
    ]


async def runs_of_sessions(connection: Connection, *, session_ids: Sequence[UUID]) -> list[Run]:
    """Over all tenants: a shared session runs for all of them."""
    return [
        Run(
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
        for r in await connection.fetch(q("runs_of_sessions"), session_ids)
    ]


async def evict(
    connection: Connection,
    *,
    tenant: int,
    urgent: tuple[UUID, int],
    session_id: UUID,
    victims: Sequence[tuple[UUID, int]],
) -> bool:
    """Asks them to make room, all or none. Needs a transaction: the rows are held before anything is looked at."""
    ids = [victim for victim, _ in victims]
    await connection.fetch(q("lock_for_eviction"), [urgent[0], *ids], tenant)
    row = await connection.fetchrow(q("evict"), *urgent, tenant, session_id, ids, [attempt for _, attempt in victims])
    return row is not None


async def open_evictions(connection: Connection, *, within_s: float) -> list[tuple[UUID, UUID, Demand, int]]:
    """Urgent execution, session, what it asks for, and the session's slots. Over all tenants: for dispatchers."""
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
    """Over all tenants: upkeep is a duty of the system."""
    await connection.execute(q("forget_evictions"))

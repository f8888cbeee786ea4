"""Workers and their sessions: one lease per worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Orphan:
    """A running execution whose session has ended."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    worker: str
    session_state: str


async def insert_session(
    connection: Connection,
    *,
    tenant: int,
    session_id: UUID,
    worker_id: UUID,
    register: wire.Register,
    lease_s: float,
) -> None:
    worker_id = await connection.fetchval(q("upsert_worker"), worker_id, tenant, register.name)
    await connection.execute(
        q("insert_session"),
        session_id,
        tenant,
        worker_id,
        register.host,
        register.version,
        register.slots,
        register.queues,
        register.kinds,
        register.labels,
        lease_s,
        register.resources,
        register.shared,
        register.takes,
    )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of a session. `running` includes executions whose results are not delivered yet."""

    tenant: int
    session_id: UUID
    running: Sequence[UUID]
    draining: bool = False
    progress: Sequence[wire.ProgressReport] = ()


async def renew_sessions(connection: Connection, *, beats: Sequence[Heartbeat], lease_s: float) -> dict[UUID, float]:
    """Renew the leases and return them; a missing session has ended. Each heartbeat names its own tenant."""
    rows = await connection.fetch(
        q("renew_sessions"),
        [b.session_id for b in beats],
        [b.tenant for b in beats],
        [len(b.running) for b in beats],
        [b.draining for b in beats],
        [_progress(b.progress) for b in beats],
        lease_s,
    )
    return {r["session_id"]: r["lease_s"] for r in rows}


def _progress(progress: Sequence[wire.ProgressReport]) -> dict[str, Any] | None:
    return {str(p.execution_id): [p.attempt, p.done, p.total, p.rate, p.message] for p in progress} or None


@dataclass(frozen=True, slots=True)
class RunningExecution:
    session_id: UUID
    execution_id: UUID
    attempt: int
    cancelling: bool
    old: bool
    leaving: bool = False


async def running_of_sessions(
    connection: Connection, *, session_ids: Sequence[UUID], old_after_s: float
) -> list[RunningExecution]:
    """Over all tenants: the caller has just renewed these sessions as their owner."""
    return [
        RunningExecution(*r.values())
        for r in await connection.fetch(q("running_of_sessions"), session_ids, old_after_s)
    ]


@dataclass(frozen=True, slots=True)
class Session:
    session_id: UUID
    tenant: int
    slots: int
    queues: tuple[str, ...]
    kinds: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False


async def session_by_id(connection: Connection, *, tenant: int, session_id: UUID) -> Session | None:
    row = await connection.fetchrow(q("session_by_id"), session_id, tenant)
    if row is None:
        return None
    return Session(
        session_id,
        tenant,
        row["slots"],
        tuple(row["queues"]),
        frozenset(row["kinds"]),
        row["labels"],
        row["resources"],
        row["shared"],
    )


async def is_session_of(connection: Connection, *, tenant: int, session_id: UUID) -> bool:
    return bool(await connection.fetchval(q("is_session_of"), session_id, tenant))


async def session_cancels(connection: Connection, *, tenant: int, session_id: UUID) -> list[UUID]:
    return [r["execution_id"] for r in await connection.fetch(q("session_cancels"), session_id, tenant)]


async def end_session(connection: Connection, *, tenant: int, session_id: UUID, lost: bool) -> bool:
    return await connection.fetchval(q("end_session"), session_id, tenant, "lost" if lost else "ended") is not None


async def expire_sessions(connection: Connection) -> tuple[list[UUID], float | None]:
    """Return expired sessions, and the seconds until the next lease ends. Over all tenants: rescue is a leader duty."""
    *expired, last = await connection.fetch(q("expire_sessions"))
    return [r["session_id"] for r in expired], last["next_end_s"]


async def orphans(connection: Connection, *, limit: int) -> list[Orphan]:
    """Over all tenants: rescue is a leader duty."""
    return [Orphan(*r.values()) for r in await connection.fetch(q("orphans"), limit)]


async def list_workers(connection: Connection, *, tenant: int, each: int = 3, limit: int = 500) -> list[wire.Worker]:
    return [_worker(r) for r in await connection.fetch(q("list_workers"), tenant, each, limit)]


def _worker(r: Any) -> wire.Worker:
    return wire.Worker(
        worker_id=r["worker_id"],
        name=r["name"],
        session_id=r["session_id"],
        state=session_state(r),
        host=r["host"],
        version=r["version"],
        slots=r["slots"],
        busy=r["busy"],
        queues=r["queues"],
        kinds=r["kinds"],
        labels=r["labels"],
        resources=r["resources"],
        shared=r["shared"],
        started_at=r["started_at"],
        seen_at=r["seen_at"],
    )


def session_state(r: Any) -> wire.WorkerState:
    """Return the state shown to users; half a lease without a heartbeat makes a session suspect."""
    if r["ended_at"] is not None:
        return "lost" if r["state"] == "lost" else "offline"
    if r["lease_expires_at"] - r["now"] < (r["lease_expires_at"] - r["seen_at"]) / 2:
        return "suspect"
    if r["state"] == "draining":
        return "draining"
    return "busy" if r["busy"] else "idle"


@dataclass(frozen=True, slots=True)
class UnsuccessfulAttempt:
    """An attempt that did not succeed at the first try, and its execution's current state, if it still exists."""

    execution_id: UUID
    attempt: int
    outcome: str
    error: str | None
    started_at: datetime
    ended_at: datetime
    state: str | None
    job: str | None


@dataclass(frozen=True, slots=True)
class WorkerSession:
    """One session of a worker, with its lease and its end."""

    worker: wire.Worker
    lease_expires_at: datetime
    ended_at: datetime | None


async def worker_sessions(connection: Connection, *, tenant: int, ref: str, limit: int) -> list[WorkerSession]:
    rows = await connection.fetch(q("worker_sessions"), tenant, ref, limit)
    return [WorkerSession(_worker(r), r["lease_expires_at"], r["ended_at"]) for r in rows]


async def executions_of_sessions(
    connection: Connection, *, tenant: int, session_ids: Sequence[UUID], limit: int
) -> list[UUID]:
    rows = await connection.fetch(q("executions_of_sessions"), tenant, list(session_ids), limit)
    return [r["execution_id"] for r in rows]


async def attempts_of_sessions(
    connection: Connection, *, tenant: int, session_ids: Sequence[UUID], limit: int
) -> list[UnsuccessfulAttempt]:
    rows = await connection.fetch(q("attempts_of_sessions"), tenant, list(session_ids), limit)
    return [UnsuccessfulAttempt(*r.values()) for r in rows]

"""Workers and their sessions: one lease per worker process."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from mainspring import ports, wire
from mainspring.domain.errors import Unavailable
from mainspring.domain.placement.functions import NO_FUNCTIONS, FunctionSet
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q

HELD = "firing is held after a restore; workers can register when an operator has run mainspring db resume"

MODULES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Orphan:
    """A running execution whose session has ended."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    worker: str
    session_state: str
    spot: bool  # it ran on a machine that may be taken away


@dataclass(frozen=True, slots=True)
class SessionProof:
    """What shows that a message comes from a session's worker: its token, and the SHA-256 of the session's key.

    Of a session, None is what an older api process or worker left open. Of a message, None is what it did not send.
    """

    token_id: UUID | None = None
    key_digest: bytes | None = None

    def accepts(self, given: SessionProof) -> bool:
        """Whether a message with the `given` proof may act for the session that has this one."""
        if self.token_id is not None and self.token_id != given.token_id:
            return False
        return self.key_digest is None or hmac.compare_digest(self.key_digest, given.key_digest or b"")


NO_PROOF = SessionProof()


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """The operating system's user of a worker, as the worker reports it."""

    uid: int | None = None
    shares_server_user: bool = False


async def insert_session(
    connection: Connection,
    *,
    tenant: int,
    session_id: UUID,
    worker_id: UUID,
    register: wire.Register,
    lease_s: float,
    proof: SessionProof = NO_PROOF,
    process: WorkerProcess | None = None,
) -> None:
    process = process or WorkerProcess()
    worker_id = await connection.fetchval(q("upsert_worker"), worker_id, tenant, register.name)
    started = await connection.fetchval(
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
        proof.token_id,
        proof.key_digest,
        process.uid,
        process.shares_server_user,
    )
    if started is None:
        raise Unavailable(HELD, code="held")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of a session. `running` includes executions whose results are not delivered yet."""

    tenant: int
    session_id: UUID
    running: Sequence[UUID]
    draining: bool = False
    progress: Sequence[wire.ProgressReport] = ()
    proof: SessionProof = NO_PROOF


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
        [b.proof.token_id for b in beats],
        [b.proof.key_digest for b in beats],
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
    disclaims: bool = False


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
    proof: SessionProof = NO_PROOF
    functions: FunctionSet | None = None  # None: of an older worker, which does not state them


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
        SessionProof(row["token_id"], row["key_digest"]),
        stated_functions(row, {row["function_set"]: _function_set(row)}),
    )


STATES_FUNCTIONS = "functions"
"""What a worker declares in `takes` when it states its functions after the registration."""


def stated_functions(r: Any, sets: Mapping[bytes | None, FunctionSet]) -> FunctionSet | None:
    """The functions of a session: rows with `takes` and `function_set`. Until it has stated them, it has none."""
    if r["function_set"] is not None:
        return sets[r["function_set"]]
    return NO_FUNCTIONS if STATES_FUNCTIONS in r["takes"] else None


async def state_functions(
    connection: Connection, *, tenant: int, session_id: UUID, functions: FunctionSet, proof: SessionProof = NO_PROOF
) -> bool:
    """Replace what a live session states; return whether it is one."""
    found = await connection.fetchval(
        q("state_functions"),
        session_id,
        tenant,
        functions.set_id,
        sorted(functions.entries),
        dict(functions.modules),
        proof.token_id,
        proof.key_digest,
    )
    if found is not None:
        hint(connection, ports.FUNCTIONS, str(session_id))
    return found is not None


async def function_sets(connection: Connection, rows: Sequence[Any]) -> dict[bytes | None, FunctionSet]:
    """The functions that sessions state, read once for all sessions with the same ones: rows with `function_set`.

    Over all tenants: the id of a set is the digest of its content.
    """
    ids = {r["function_set"] for r in rows if r["function_set"] is not None}
    if not ids:
        return {}
    found = await connection.fetch(q("function_sets"), list(ids))
    return {r["function_set"]: _function_set(r) for r in found}


def _function_set(r: Any) -> FunctionSet:
    return FunctionSet(r["function_set"] or b"", frozenset(r["functions"] or ()), r["modules"] or {})


async def forget_function_sets(connection: Connection) -> None:
    """Delete unused sets of functions. Over all tenants: this is maintenance."""
    await connection.execute(q("forget_function_sets"))


async def session_proof(connection: Connection, *, tenant: int, session_id: UUID) -> SessionProof | None:
    """What a session's messages must prove, also after its end; None if the tenant has no such session."""
    row = await connection.fetchrow(q("session_proof"), session_id, tenant)
    return None if row is None else SessionProof(*row.values())


async def session_keys(connection: Connection, *, session_ids: Sequence[UUID]) -> dict[UUID, bytes]:
    """The digests of the keys of sessions, ended or not. Over all tenants: signed records name their session only."""
    return {r["session_id"]: r["key_digest"] for r in await connection.fetch(q("session_keys"), session_ids)}


async def session_cancels(connection: Connection, *, tenant: int, session_id: UUID) -> list[UUID]:
    return [r["execution_id"] for r in await connection.fetch(q("session_cancels"), session_id, tenant)]


async def end_session(
    connection: Connection, *, tenant: int, session_id: UUID, lost: bool, proof: SessionProof = NO_PROOF
) -> bool:
    state = "lost" if lost else "ended"
    ended = await connection.fetchval(q("end_session"), session_id, tenant, state, proof.token_id, proof.key_digest)
    return ended is not None


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
    states = r["function_set"] is not None or STATES_FUNCTIONS in r["takes"]
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
        functions=(r["functions"] or []) if states else None,
        function_count=r["function_count"] or 0,
        modules=dict(islice((r["modules"] or {}).items(), MODULES_SHOWN)),
    )


def session_state(r: Any) -> wire.WorkerState:
    """Return the state shown to users; three quarters of a lease without a heartbeat make a session suspect.

    An idle worker sends one every half lease, so a busy machine may delay it by a quarter.
    """
    if r["ended_at"] is not None:
        return "lost" if r["state"] == "lost" else "offline"
    if r["lease_expires_at"] - r["now"] < (r["lease_expires_at"] - r["seen_at"]) / 4:
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


@dataclass(frozen=True, slots=True)
class ExposedWorker:
    """A worker that runs as root, or as the user of its api process."""

    name: str
    host: str
    uid: int | None
    shares_server_user: bool


async def exposed_workers(connection: Connection, *, tenant: int, limit: int = 20) -> list[ExposedWorker]:
    return [ExposedWorker(*r.values()) for r in await connection.fetch(q("exposed_workers"), tenant, limit)]


async def set_draining(connection: Connection, *, tenant: int, name: str, draining: bool) -> list[UUID]:
    """Let the open sessions of a worker drain, or end that; return those that changed."""
    return [r["session_id"] for r in await connection.fetch(q("set_draining"), tenant, name, draining)]

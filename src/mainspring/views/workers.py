"""Workers: the list, and the history of one worker's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.store import executions, sessions
from mainspring.store.db import Database
from mainspring.store.sessions import UnsuccessfulAttempt, WorkerSession

SESSIONS_SHOWN = 10
EXECUTIONS_SHOWN = 50
RUNNING_SHOWN = 200
"""Running executions in the list of workers."""


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt that ended with its session, and its execution as it is now."""

    execution: wire.Execution
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class WorkerHistory:
    """A worker's sessions, newest first, with what they run, lost and failed. `failures` excludes lost attempts."""

    sessions: list[WorkerSession]
    running: list[wire.Execution]
    lost: list[LostAttempt]
    failures: list[UnsuccessfulAttempt]

    @property
    def session(self) -> WorkerSession:
        return self.sessions[0]

    @property
    def worker(self) -> wire.Worker:
        return self.sessions[0].worker


async def list_workers(database: Database, *, tenant: int) -> list[wire.Worker]:
    async with database.connection() as connection:
        return await sessions.list_workers(connection, tenant=tenant)


async def running(database: Database, session_ids: Sequence[UUID], *, tenant: int) -> list[wire.Execution]:
    """What some sessions run, at most RUNNING_SHOWN."""
    if not session_ids:
        return []
    async with database.connection() as connection:
        ids = await sessions.executions_of_sessions(
            connection, tenant=tenant, session_ids=session_ids, limit=RUNNING_SHOWN
        )
        return await executions.executions_by_id(connection, tenant=tenant, execution_ids=ids) if ids else []


async def history(database: Database, ref: str, *, tenant: int) -> WorkerHistory:
    """The history of a worker, by name or id."""
    async with database.connection() as connection:
        found = await sessions.worker_sessions(connection, tenant=tenant, ref=ref, limit=SESSIONS_SHOWN)
        if not found:
            raise NotFound(f"there is no worker {ref!r}")
        ids = [session.worker.session_id for session in found]
        running = await sessions.executions_of_sessions(
            connection, tenant=tenant, session_ids=ids, limit=EXECUTIONS_SHOWN
        )
        ended = await sessions.attempts_of_sessions(connection, tenant=tenant, session_ids=ids, limit=EXECUTIONS_SHOWN)
        wanted = [*running, *(attempt.execution_id for attempt in ended if attempt.outcome == "lost")]
        rows = await executions.executions_by_id(connection, tenant=tenant, execution_ids=wanted) if wanted else []
    known = {e.execution_id: e for e in rows}
    return WorkerHistory(
        found,
        [known[e] for e in running if e in known],
        [
            LostAttempt(known[a.execution_id], a.attempt, a.ended_at)
            for a in ended
            if a.outcome == "lost" and a.execution_id in known
        ],
        [a for a in ended if a.outcome != "lost"],
    )


def summary(found: WorkerHistory) -> str:
    """One or two sentences on the worker's state."""
    session, worker = found.session, found.worker
    lost = [loss for loss in found.lost if loss.at >= (session.ended_at or worker.started_at)]
    match worker.state:
        case "suspect":
            running = len(found.running)
            held = f" It runs {_count(running)}, requeued if the lease expires." if running else ""
            return "It has missed heartbeats: slow, disconnected or dead. Its lease decides." + held
        case "lost":
            given = f" {_count(len(lost)).capitalize()} ran on it and {_were(len(lost))} requeued." if lost else ""
            # A session that ends before its lease expires was reported dead by its guardian.
            reported = session.ended_at is not None and session.ended_at < session.lease_expires_at
            why = "its process died" if reported else "its lease expired without a heartbeat"
            return f"It was lost: {why}.{given}"
        case "offline":
            return "It has stopped after a clean shutdown."
        case "draining":
            return "It is draining: it finishes its executions and claims no new ones."
    return f"It is healthy and runs {_count(len(found.running))} in {worker.slots:,} slots."


def outcome_of(loss: LostAttempt) -> str:
    """What happened to an execution after its attempt was lost."""
    e = loss.execution
    match e.state:
        case "queued":
            return "requeued, waits for a worker"
        case "waiting" | "blocked":
            return "will be retried"
        case "running":
            return f"runs again as attempt {e.attempt}" + (f" on {e.worker}" if e.worker else "")
        case "lost":
            return "lost: its delivery is at most once, or it was lost too often"
    return f"{e.state.replace('_', ' ')} with attempt {e.attempt}" + (f" on {e.worker}" if e.worker else "")


def _count(n: int) -> str:
    return "no execution" if not n else "one execution" if n == 1 else f"{n:,} executions"


def _were(n: int) -> str:
    return "was" if n == 1 else "were"

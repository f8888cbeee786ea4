"""Queues and workers as people watch them: how much flows, who executes what, and what went wrong where."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.store import executions, queues, sessions
from mainspring.store.db import Database, database_now_ms
from mainspring.store.queues import Flow
from mainspring.store.sessions import Mishap

FLOW_S = 300.0
DUE_S = 600.0
"""Rates are of the last five minutes, of what was due in the last ten: a bounded look, whatever history holds."""
MOST_SEEN = 3_000
SESSIONS_SHOWN = 10
SHOWN = 50


@dataclass(frozen=True, slots=True)
class WorkerStory:
    """A worker: its sessions, newest first, what they execute now, and what did not end well on them."""

    sessions: list[wire.Worker]
    running: list[wire.Execution]
    mishaps: list[Mishap]

    @property
    def latest(self) -> wire.Worker:
        return self.sessions[0]


async def flow(database: Database, *, tenant: int) -> dict[str, Flow]:
    """Executions a minute into and out of each queue."""
    async with database.connection() as connection:
        since_ms = int(await database_now_ms(connection)) - int(DUE_S * 1000)
        since = UUID(int=since_ms << 80)
        return await queues.queue_flow(connection, tenant=tenant, since=since, most=MOST_SEEN, seconds=FLOW_S)


async def worker(database: Database, ref: str, *, tenant: int) -> WorkerStory:
    """A worker by name or id."""
    async with database.connection() as connection:
        lives = await sessions.worker_sessions(connection, tenant=tenant, ref=ref, limit=SESSIONS_SHOWN)
        if not lives:
            raise NotFound(f"there is no worker {ref!r}")
        ids = [life.session_id for life in lives]
        now = await sessions.executions_of_sessions(connection, tenant=tenant, session_ids=ids, limit=SHOWN)
        running = await executions.executions_by_id(connection, tenant=tenant, execution_ids=now) if now else []
        mishaps = await sessions.attempts_of_sessions(connection, tenant=tenant, session_ids=ids, limit=SHOWN)
    return WorkerStory(lives, sorted(running, key=lambda e: e.execution_id, reverse=True), mishaps)

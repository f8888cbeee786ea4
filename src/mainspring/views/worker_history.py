"""What became of a worker: its sessions, what it runs, and what was taken from it when it was lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.store import executions, sessions
from mainspring.store.db import Database
from mainspring.store.sessions import Life, Mishap

LIVES = 10
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that ended with its session, and what its execution is now."""

    execution: wire.Execution
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Story:
    """`lives` are sessions, the newest first; `mishaps` are attempts on them that ended badly, but not by their end."""

    lives: list[Life]
    running: list[wire.Execution]
    losses: list[Loss]
    mishaps: list[Mishap]

    @property
    def life(self) -> Life:
        return self.lives[0]

    @property
    def worker(self) -> wire.Worker:
        return self.lives[0].worker


async def worker_story(database: Database, ref: str, *, tenant: int) -> Story:
    """Of a worker by name or id."""
    async with database.connection() as connection:
        lives = await sessions.worker_sessions(connection, tenant=tenant, ref=ref, limit=LIVES)
        if not lives:
            raise NotFound(f"there is no worker {ref!r}")
        ids = [life.worker.session_id for life in lives]
        runs = await sessions.executions_of_sessions(connection, tenant=tenant, session_ids=ids, limit=SHOWN)
        bad = await sessions.attempts_of_sessions(connection, tenant=tenant, session_ids=ids, limit=SHOWN)
        wanted = [*runs, *(one.execution_id for one in bad if one.outcome == "lost")]
        found = await executions.executions_by_id(connection, tenant=tenant, execution_ids=wanted) if wanted else []
    known = {e.execution_id: e for e in found}
    return Story(
        lives,
        [known[e] for e in runs if e in known],
        [
            Loss(known[b.execution_id], b.attempt, b.ended_at)
            for b in bad
            if b.outcome == "lost" and b.execution_id in known
        ],
        [b for b in bad if b.outcome != "lost"],
    )


def sentence(story: Story) -> str:
    """What a person should know first."""
    life, worker = story.life, story.worker
    lost = [loss for loss in story.losses if loss.at >= (life.ended_at or worker.started_at)]
    match worker.state:
        case "suspect":
            held = f" It holds {_count(len(story.running))}, given back when that ends." if story.running else ""
            return "It has missed heartbeats. It may be slow, cut off or dead: its lease decides." + held
        case "lost":
            given = f" {_count(len(lost)).capitalize()} ran on it and {_were(len(lost))} given back." if lost else ""
            # Whoever ends before its lease was seen to die by the guardian beside it.
            seen = life.ended_at is not None and life.ended_at < life.lease_expires_at
            why = "its process died" if seen else "no heartbeat came before its lease ended"
            return f"It was lost: {why}.{given}"
        case "offline":
            return "It has said goodbye; nothing is expected of it."
        case "draining":
            return "It ends what it runs and takes nothing new."
    return f"It is well and runs {_count(len(story.running))} in {worker.slots:,} slots."


def became(loss: Loss) -> str:
    """What followed for an execution, in a few words."""
    e = loss.execution
    match e.state:
        case "queued":
            return "queued again, waits for a worker"
        case "waiting" | "blocked":
            return "will be tried again"
        case "running":
            return f"runs again as attempt {e.attempt}" + (f" on {e.worker}" if e.worker else "")
        case "lost":
            return "lost for good: it may not be executed twice, or it was lost too often"
    return f"{e.state.replace('_', ' ')} with attempt {e.attempt}" + (f" on {e.worker}" if e.worker else "")


def _count(n: int) -> str:
    return "no execution" if not n else "one execution" if n == 1 else f"{n:,} executions"


def _were(n: int) -> str:
    return "was" if n == 1 else "were"

"""What became of a worker: its sessions, what it runs, and what was taken from it when it was lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.intake.catalog import is_id
from mainspring.store import executions, pictures
from mainspring.store.db import Database
from mainspring.store.pictures import Life

LIVES = 5
SHOWN = 50
AMONG = 5000
"""So many attempts are looked through: there is no index by session, and older losses are told by the executions."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that ended with its session, and what its execution is now."""

    execution: wire.Execution
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Story:
    """`lives` are sessions, the newest first; `running` is what the newest runs."""

    worker_id: UUID
    lives: list[Life]
    running: list[wire.Execution]
    losses: list[Loss]

    @property
    def life(self) -> Life:
        return self.lives[0]


async def worker_story(database: Database, ref: str, *, tenant: int) -> Story:
    if not is_id(ref):
        raise NotFound(f"there is no worker {ref!r}")
    async with database.connection() as connection:
        lives = await pictures.worker_lives(connection, tenant=tenant, worker_id=UUID(ref), limit=LIVES)
        if not lives:
            raise NotFound(f"there is no worker {ref}")
        runs = await pictures.running_on(connection, tenant=tenant, session_id=lives[0].session_id, limit=SHOWN)
        sessions = [life.session_id for life in lives]
        lost = await pictures.attempts_lost_with(
            connection, tenant=tenant, session_ids=sessions, limit=SHOWN, among=AMONG
        )
        wanted = [*runs, *(execution_id for execution_id, _, _, _ in lost)]
        found = await executions.executions_by_id(connection, tenant=tenant, execution_ids=wanted) if wanted else []
    known = {e.execution_id: e for e in found}
    return Story(
        UUID(ref), lives, [known[e] for e in runs if e in known],
        [Loss(known[e], attempt, at) for e, attempt, _, at in lost if e in known],
    )  # fmt: skip


def sentence(story: Story) -> str:
    """What a person should know first."""
    life = story.life
    lost = [loss for loss in story.losses if loss.at >= (life.ended_at or life.started_at)]
    match life.state:
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
    return f"It is well and runs {_count(len(story.running))} in {life.slots:,} slots."


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

"""The life of an execution, as data.

                     ┌───────────── retry, rescue with backoff ─────────────┐
                     ▼                                                      │
    (fire, submit) waiting ──due──▶ queued ──claim──▶ running ──settle──▶ succeeded
                     │                │ ▲                │                failed
                     │                │ └─ rescue, drain ┘                timed_out
                     └── cancel ──────┴───── cancel ─────────────────────▶ cancelled
                                                          rescue ───────▶ lost
    (fire) ─────────── overlap, misfire, blackout, start_by ────────────▶ skipped

A final state never changes: a rerun is a new execution. State says where an execution is;
outcome says how one attempt ended.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args
from uuid import UUID

State = Literal[
    "waiting",
    "blocked",
    "queued",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
    "lost",
]
Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "lost", "preempted"]
Trigger = Literal["fire", "manual", "backfill", "replay", "step"]
Delivery = Literal["at_least_once", "at_most_once", "effectively_once"]

STATES: tuple[State, ...] = get_args(State)
LIVE: frozenset[State] = frozenset(("waiting", "blocked", "queued", "running"))
FINAL: frozenset[State] = frozenset(STATES) - LIVE
FAILED: frozenset[State] = frozenset(("failed", "timed_out", "lost"))
"""Final states of executions that did not do their work; each leaves a dead letter."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# None stands for "does not exist yet".
TRANSITIONS: dict[State | None, frozenset[State]] = {
    None: frozenset(("waiting", "blocked", "queued", "skipped")),
    "waiting": frozenset(("queued", "cancelled", "skipped")),
    "blocked": frozenset(("queued", "waiting", "cancelled", "skipped")),
    "queued": frozenset(("running", "cancelled", "skipped")),
    "running": frozenset(
        ("queued", "waiting", "succeeded", "failed", "timed_out", "cancelled", "lost"),
    ),
    **{state: frozenset[State]() for state in FINAL},
}

POISON_AFTER_LOST = 3
"""So many lost sessions in a row make an execution poison: it fails instead of taking down a fourth worker."""


_STEP_BIT = 1 << 60
"""Makes the variant digit `b` instead of `a`: both are of RFC 9562."""


def execution_id(job_id: UUID, fire_ms: int, trigger_key: str) -> UUID:
    """Same trigger, same id, whoever computes it (store/schema.sql has the same in SQL).

    A valid RFC 9562 version 8 UUID: 48 bits of time, then 72 bits of SHA-256 of job and trigger key,
    so ids sort by the instant they stand for and inserts stay at the right edge of the index.
    """
    digest = hashlib.sha256(f"{job_id}:{trigger_key}".encode()).hexdigest()
    return UUID(f"{fire_ms:012x}8{digest[:3]}a{digest[3:18]}")


def step_id(job_id: UUID, run_ms: int, trigger_key: str) -> UUID:
    """The id of a step's execution: it shows by itself that a run waits for it, so that settling need not ask."""
    return UUID(int=execution_id(job_id, run_ms, trigger_key).int | _STEP_BIT)


def is_step(execution: UUID) -> bool:
    """Whether a run waits for this execution."""
    return execution.int >> 60 & 0xF == 0xB


def step_key(run_id: UUID, step: str, item: int) -> str:
    return f"step:{run_id}:{step}:{item}"


def fire_key(fire_ms: int) -> str:
    return f"fire:{fire_ms}"


def fire_ms_of(execution: UUID) -> int:
    """The instant inside an execution's id."""
    return execution.int >> 80

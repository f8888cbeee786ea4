"""States of an execution, the legal transitions between them, and execution ids.

                     ┌──────────────── retry with backoff ──────────────────┐
                     ▼                                                      │
    (fire, submit) waiting ──due──▶ queued ──claim──▶ running ──settle──▶ succeeded
                     ▲                ▲ ▲                │                failed
                     │                │ └─ retry, rescue ┘                timed_out
                   blocked ──release──┘                                   lost
                                                                          cancelled
    (fire) ─────────── overlap, misfire, blackout, start_by ────────────▶ skipped

A final state never changes: a rerun is a new execution. A state belongs to an execution, an outcome to one attempt.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import Literal, NamedTuple, get_args
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


class Transition(NamedTuple):
    """A legal change of state, and the operations that perform it. `before` is None for a new execution."""

    before: State | None
    after: State
    operations: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, "waiting", "submit or fire for a later time; fire of a job that needs others; step with a delay"),
    Transition(None, "blocked", "fire while another execution of the job is live (overlap policy)"),
    Transition(None, "queued", "fire, submit, backfill, replay, release of a step"),
    Transition(None, "running", "direct handoff of a submission or step to an idle worker"),
    Transition(None, "skipped", "fire that does not run: overlap, misfire, blackout, pause, edit"),
    Transition("waiting", "queued", "due time reached; needed jobs have succeeded; blackout over"),
    Transition("waiting", "cancelled", "cancel; overlap policy cancel_running"),
    Transition("waiting", "skipped", "start_by passed; needed jobs did not succeed in time; blackout; paused too long"),
    Transition("blocked", "queued", "previous execution of the job ended"),
    Transition("blocked", "waiting", "previous execution of the job ended, but the job needs others or is not due"),
    Transition("blocked", "cancelled", "cancel; overlap policy cancel_running"),
    Transition("blocked", "skipped", "start_by passed"),
    Transition("queued", "running", "claim; start of a workflow run"),
    Transition("queued", "cancelled", "cancel; overlap policy cancel_running"),
    Transition("queued", "skipped", "start_by passed"),
    Transition("running", "queued", "retry without backoff; rescue; preemption; drain of the worker"),
    Transition("running", "waiting", "retry with backoff"),
    Transition("running", "succeeded", "settle"),
    Transition("running", "failed", "settle without retries left; third lost worker in a row"),
    Transition("running", "timed_out", "settle without retries left; timeout of a run"),
    Transition("running", "cancelled", "settle after a cancel request"),
    Transition("running", "lost", "rescue of at_most_once, or without retries left"),
)
"""Every change of state that the statements in store/sql perform. All others are bugs.

The database refuses illegal changes between live states (trigger executions_transition), live states in `history`,
final states in `executions` (CHECK constraints), and every update of `history`.
"""

_LEGAL = frozenset((t.before, t.after) for t in TRANSITIONS)


def can_change(before: State | None, after: State) -> bool:
    """Return whether an execution may change from one state to another; from None: be created in it."""
    return (before, after) in _LEGAL


POISON_AFTER_LOST = 3
"""Lost sessions in a row after which an execution fails, instead of costing another worker."""
POISON_AFTER_LOST_SPOT = 10
"""The same, if the last one was on a spot worker: those are lost for reasons of their own."""

_STEP_BIT = 1 << 60
"""Makes the variant digit `b` instead of `a`; both are valid in RFC 9562."""


def execution_id(job_id: UUID, fire_ms: int, trigger_key: str) -> UUID:
    """Return the id of an execution: the same trigger always has the same id (store/schema.sql computes it in SQL).

    A valid RFC 9562 version 8 UUID: 48 bits of time, then 72 bits of SHA-256 of job and trigger key,
    so ids sort by the instant they stand for and inserts stay at the right edge of the index.
    """
    return UUID(f"{fire_ms:012x}{id_suffix(job_id, trigger_key)}")


def id_suffix(job_id: UUID, trigger_key: str) -> str:
    """Return the part of an execution id that does not depend on its time, as 20 hex digits."""
    return _suffix(hashlib.sha256(f"{job_id}:{trigger_key}".encode()).hexdigest())


_order = itertools.count(int.from_bytes(os.urandom(3), "big"))


def new_id_suffixes(n: int) -> list[str]:
    """Return suffixes for `n` executions without a key: 24 bits of a counter, then 48 random bits.

    By the counter, executions that a process creates within a millisecond keep their order.
    """
    digits = os.urandom(6 * n).hex()
    return [_suffix(f"{next(_order) & 0xFFFFFF:06x}{digits[at : at + 12]}") for at in range(0, 12 * n, 12)]


ID_SUFFIX_BYTES = 10


def new_id_suffix_bytes(n: int) -> list[bytes]:
    """Return what `new_id_suffixes` returns, as bytes: five times as fast."""
    random = os.urandom(6 * n)
    counted = [next(_order) for _ in range(n)]
    return [
        (0x8000A000 | (count & 0xFFF000) << 4 | count & 0xFFF).to_bytes(4, "big") + random[at : at + 6]
        for count, at in zip(counted, range(0, 6 * n, 6), strict=True)
    ]


def _suffix(digest: str) -> str:
    return f"8{digest[:3]}a{digest[3:18]}"


def step_id(job_id: UUID, run_ms: int, trigger_key: str) -> UUID:
    """Return the id of a step's execution. It shows that it is a step, so settling needs no query for that."""
    return UUID(int=execution_id(job_id, run_ms, trigger_key).int | _STEP_BIT)


def is_step(execution: UUID) -> bool:
    """Return whether an execution is a step of a run."""
    return execution.int >> 60 & 0xF == 0xB


def step_key(run_id: UUID, step: str, item: int) -> str:
    return f"step:{run_id}:{step}:{item}"


def fire_key(fire_ms: int) -> str:
    return f"fire:{fire_ms}"


def fire_ms_of(execution: UUID) -> int:
    """Return the fire time contained in an execution id."""
    return execution.int >> 80

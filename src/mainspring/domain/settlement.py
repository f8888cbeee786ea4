"""Values of settling: how attempts ended, the verdict on each, and what a batch settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.dead_letter import leaves_dead_letter
from mainspring.domain.execution import FINAL, Outcome, State, can_change
from mainspring.domain.fingerprint import fingerprint


class AttemptResult(msgspec.Struct, frozen=True):
    """How an attempt ended, as its session or the rescue reports it.

    A msgspec struct because a busy server makes thousands of them a second.
    """

    execution_id: UUID
    attempt: int
    session_id: UUID
    outcome: Outcome
    duration_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    result: Any = None
    retry: bool = True  # false: the task says that another attempt would end the same way
    spot: bool = False  # of a lost one: on a machine that may be taken away at any time


@dataclass(frozen=True, slots=True)
class LockedExecution:
    """A running execution whose row is locked while its verdict is reached."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    job_id: UUID
    version: int
    tenant: int
    failures: int
    lost: int
    cancelling: str | None  # the reason of a requested cancellation
    urgent: str | None = None  # the execution that it was preempted for


@dataclass(frozen=True, slots=True)
class Retry:
    """Verdict: another attempt, at once or after `delay_s`."""

    ended: AttemptResult
    delay_s: float
    failures: int
    lost: int


@dataclass(frozen=True, slots=True)
class Final:
    """Verdict: the execution ends in this state."""

    ended: AttemptResult
    state: State
    reason: str | None

    def __post_init__(self) -> None:
        if self.state not in FINAL or not can_change("running", self.state):
            raise ValueError(f"a verdict cannot end a running execution as {self.state}")

    @property
    def leaves_dead_letter(self) -> bool:
        return leaves_dead_letter(self.state)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.reason or self.ended.error, state=self.state, exit_code=self.ended.exit_code)


@dataclass(frozen=True, slots=True)
class Successor:
    """The only step behind a step of a run, and its parameters."""

    run_id: UUID
    step: int
    next: int
    params: Any


@dataclass(slots=True)
class Settled:
    """What a batch settled, collected over its statements."""

    executions: set[UUID] = field(default_factory=set)
    chained: set[UUID] = field(default_factory=set)  # jobs whose next blocked execution may be released
    final: dict[str, int] = field(default_factory=dict)  # number of executions that became final, by state
    paused: set[UUID] = field(default_factory=set)  # executions whose failure paused their job
    freed: set[int] = field(default_factory=set)  # concurrency keys with a free slot
    ended_as: dict[UUID, str] = field(default_factory=dict)  # final state of those that went through a verdict

    def add(self, rows: Sequence[Any], states: Mapping[UUID, str] | None = None) -> None:
        """Add rows of (execution, chained job, concurrency key); without `states` all of them succeeded."""
        ids = [row[0] for row in rows]
        self.executions.update(ids)
        self.chained.update(row[1] for row in rows if row[1] is not None)
        self.freed.update(row[2] for row in rows if row[2] is not None)
        if states is None:
            self.final["succeeded"] = self.final.get("succeeded", 0) + len(ids)
            return
        for execution_id in ids:
            state = self.ended_as[execution_id] = states[execution_id]
            self.final[state] = self.final.get(state, 0) + 1

"""Values of a workflow run in progress: its row, its steps, and how steps end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from mainspring.domain.workflow.readiness import WEIGHTS, Weight

ENGINE_SESSION = UUID(int=1)
"""The session id of a run's own execution, which no worker runs."""
WHOLE = -1
"""The item number of a step itself. Items of a mapped or repeated step count from 0."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose row is locked."""

    run_id: UUID
    tenant: int
    job_id: UUID
    version: int
    state: str
    params: Any
    fire_at: datetime
    started_at: datetime
    depth: int
    ends_as: str | None

    @property
    def cancelling(self) -> bool:
        return self.state == "cancelling"


@dataclass(frozen=True, slots=True)
class StepRef:
    """The key of a step in a run, or of one item of that step."""

    run_id: UUID
    step: int
    item: int = WHOLE


class LockedRuns(NamedTuple):
    """Locked runs by id, and the step that each execution is."""

    runs: dict[UUID, Run]
    steps: dict[UUID, StepRef]


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step or an item ended."""

    ref: StepRef
    state: str
    weight: Weight
    result: Any = None
    reason: str | None = None
    by: str | None = None
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionEnd:
    """The final state of an execution that is a step of a run."""

    execution_id: UUID
    state: str
    result: Any = None
    reason: str | None = None

    def of_step(self, ref: StepRef) -> StepEnd:
        return StepEnd(ref, self.state, WEIGHTS[self.state], self.result, self.reason)


@dataclass(frozen=True, slots=True)
class ItemGroup:
    """A mapped or repeated step: number of items, items not yet ended, items failed, next item to release."""

    ref: StepRef
    items: int
    open: int
    failed: int
    next: int


@dataclass(frozen=True, slots=True)
class StepRelease:
    """A step or item that becomes an execution, of a task or of another workflow."""

    ref: StepRef
    params: Any = None
    workflow: str | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A claimed execution of a workflow whose run has not been written yet."""

    run_id: UUID
    job_id: UUID
    tenant: int
    version: int
    attempt: int
    fire_at: datetime
    params: Any
    created_by: str | None
    started_at: datetime
    depth: int


@dataclass(frozen=True, slots=True)
class NewRun:
    claimed: ClaimedRun
    version: int
    open_steps: int
    timeout_s: float | None
    sla_s: float | None
    rerun_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewRunStep:
    ref: StepRef
    execution_id: UUID | None
    unmet: int
    keeps: bool  # an expression or template reads its result
    value: Any = None


@dataclass(frozen=True, slots=True)
class ClosedRun:
    run_id: UUID
    state: str
    attempt: int
    reason: str | None
    lasted_s: float
    in_time: bool | None


@dataclass(slots=True)
class EndCounts:
    """Number of ended steps by weight."""

    ok: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(slots=True)
class CountedEnds:
    """Effects of counting ended steps.

    `ready`: steps without an open parent, with their parents' counts (ok, failed, skipped).
    `done`: runs without an open step, with the number of failed steps and of successful end steps.
    """

    ready: list[tuple[StepRef, int, int, int]] = field(default_factory=list)
    done: list[tuple[UUID, int, int]] = field(default_factory=list)

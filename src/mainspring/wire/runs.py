"""Workflow runs, their steps, and the decisions users make about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Name, Values
from mainspring.domain.workflow.spec import RunState, StepKind, StepState
from mainspring.wire.executions import LifecycleEvent
from mainspring.wire.message import Request, Response


class RunRequest(Request):
    """Starts a run; for a day, the same `key` returns the same run.

    With `reason`, even an empty one, the request is recorded in the audit log, as for runs that a user starts;
    programs omit it.
    """

    params: Values | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Rerun(Request):
    """Reruns from a step; without a name, from the steps that did not succeed."""

    from_step: Name | None = None


class Decision(Request):
    """The decision on a step that waits for approval."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class Override(Request):
    """Skips a step, or marks it as succeeded with this result."""

    reason: Annotated[str, msgspec.Meta(max_length=4000)]
    result: Any = None


class RunCancel(Request):
    reason: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class RunEvent(Request):
    """An event; its payload becomes the result of the step that waits for it."""

    payload: Any = None


class RunStep(Response):
    """A step of a run, or an item of a mapped or repeated step.

    `duration_ms`: of its execution; of a step without one, or with items, from its release to its end.
    `critical`: it is on the critical path; `slack_s`: how much longer it could have taken without delaying the run.
    `blocked_by` names the failed steps that kept it from starting.
    """

    name: str
    kind: StepKind
    state: StepState
    needs: list[str]
    item: int | None = None
    execution_id: UUID | None = None
    created_at: datetime | None = None
    released_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_ms: int | None = None
    wake_at: datetime | None = None
    attempt: int | None = None
    worker: str | None = None
    critical: bool = False
    slack_s: float | None = None
    blocked_by: list[str] = []
    items: int | None = None
    open_items: int | None = None
    result: Any = None
    reason: str | None = None
    decided_by: str | None = None
    flag: Literal["forced", "skipped", "kept"] | None = None
    message: str | None = None
    """The question of an approval."""
    scope: str | None = None
    """The scope that a token needs to decide it."""
    self_approval: bool | None = None
    """Of an approval: whether the token that started the run, or wrote the workflow, may give it."""


class Run(Response):
    """One occurrence of a workflow: `queued` until it may start, `skipped` if that was too late.

    Lists omit `steps`. `failed` names steps that did not succeed, `blocked` those that could not start because of them.
    """

    run_id: UUID
    job_id: UUID
    workflow: str
    version: int
    state: RunState | Literal["queued", "skipped"]
    open_steps: int
    fire_at: datetime
    params: dict[str, Any] | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_ms: int | None = None
    timeout_at: datetime | None = None
    sla_at: datetime | None = None
    reason: str | None = None
    created_by: str | None = None
    rerun_of: UUID | None = None
    failed: list[str] = []
    blocked: list[str] = []
    steps: list[RunStep] = []


class StepTimeline(Response):
    """The events of a step (`step.…`) and of its execution in order, and its items if it has any."""

    step: RunStep
    events: list[LifecycleEvent]
    items: list[RunStep] = []


class GridRun(Response):
    """A run and the states of its steps in the order of the grid; null: its version has no such step."""

    run_id: UUID
    state: RunState
    version: int
    fire_at: datetime
    started_at: datetime
    finished_at: datetime | None
    steps: list[StepState | None]


class Grid(Response):
    """The latest runs of a workflow, newest first."""

    workflow: str
    steps: list[str]
    runs: list[GridRun]

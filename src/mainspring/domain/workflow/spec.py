"""Workflow definitions as users write them: steps and their needs. Durations are seconds, `10m` or ISO 8601."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec

from mainspring.domain.artifact import ArtifactIn
from mainspring.domain.bounds import MAX_SMALL_LIST, Amounts, Duration, Labels, Line, Name, Values
from mainspring.domain.execution import Delivery
from mainspring.domain.job import JobSpec, Misfire, Notify, Overlap, PlaintextNames, Task, WorkflowTask
from mainspring.domain.limit import Concurrency, Rate
from mainspring.domain.params import Params
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpecs

Rule = Literal["all_succeeded", "all_done", "any_succeeded", "none_failed", "always"]
"""When a step may start once its needs have ended. `always` also starts while the run is being cancelled."""
RunState = Literal["running", "succeeded", "failed", "partial", "cancelling", "cancelled", "timed_out"]
StepState = Literal["blocked", "waiting", "running", "succeeded", "failed", "timed_out", "cancelled", "skipped", "lost"]
StepKind = Literal["task", "approval", "wait", "event", "workflow"]

STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
MOST_STEPS = 12_000
MOST_ITEMS = 10_000
MOST_NEEDS = 10_000
"""Of one step."""
MOST_EDGES = 200_000
"""Needs of all steps together."""
MOST_EXPRESSION_CHARS = 500_000
"""Characters of all different expressions together."""
MOST_TEMPLATES = 30_000
"""Of all steps together."""

Expression = Line
"""A condition; `condition.MOST_LENGTH` bounds it, with a message of its own."""


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waits for approval. Without an answer before `expires` the step is rejected.

    The user or token that started the run, or wrote the version of the workflow, cannot approve it unless
    `self_approval` allows that. With `roles`, `users` or `groups`, only these decide. `count` users or tokens have to
    approve.
    With `guards_edits`, only those who decide may change the workflow.
    """

    scope: Name = "write"
    expires: Duration | None = None
    message: Line = ""
    self_approval: bool = False
    roles: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] = ()
    users: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] = ()
    groups: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] = ()
    count: Annotated[int, msgspec.Meta(ge=1, le=20)] = 1
    guards_edits: bool = False

    @property
    def deciders(self) -> tuple[str, ...]:
        """Who decides, as shown: `role release`, `user ann`, `group auditors`. Empty: every caller with the scope."""
        kinds = (("role", self.roles), ("user", self.users), ("group", self.groups))
        return tuple(f"{kind} {name}" for kind, names in kinds for name in names)

    def admits(self, *, role: str | None, user: str | None, groups: Collection[str] = ()) -> bool:
        """Whether a caller of this role, this user, or a member of these groups is among those who decide."""
        named = role in self.roles or user in self.users or any(group in self.groups for group in groups)
        return named or not self.deciders


class EventWait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waits for an event sent to the run; the payload becomes the result of the step."""

    name: Name
    timeout: Duration | None = None


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Waits for a duration, or until an instant (with an offset, or a wall time in `timezone`)."""

    until: Line | None = None
    for_: Duration | None = msgspec.field(default=None, name="for")
    timezone: Name = "UTC"


class Repeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Repeats the step until `until` holds for its `result`, at most `max` times, with `delay` in between."""

    until: Expression
    max: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    delay: Duration | None = None


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step: a task, another workflow, an approval, an event or a wait."""

    task: Task | None = None
    workflow: Name | None = None
    approval: Approval | None = None
    event: EventWait | None = None
    wait: Duration | Wait | None = None
    needs: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NEEDS)] = ()
    rule: Rule = "all_succeeded"
    on_upstream_failure: Literal["skip", "go_on"] = "skip"
    when: Expression | None = None
    map: Expression | None = None
    max_parallel: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] | None = None
    max_failed: Annotated[int, msgspec.Meta(ge=0, le=MOST_ITEMS)] = 0
    repeat: Repeat | None = None
    params: Values = {}
    description: Line = ""
    queue: Name | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] | None = None
    timeout: Duration | None = None
    retries: RetryPolicy | None = None
    delivery: Delivery = "at_least_once"
    estimated_duration: Duration | None = None
    labels: Labels = {}
    resources: Amounts = {}
    exclusive: bool = False
    concurrency: Concurrency | None = None
    rate: Rate | None = None
    artifacts_in: Annotated[tuple[ArtifactIn, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] = ()
    allow_plaintext: PlaintextNames = ()

    @property
    def kind(self) -> StepKind:
        if self.task is not None:
            return "task"
        if self.workflow is not None:
            return "workflow"
        if self.approval is not None:
            return "approval"
        return "event" if self.event is not None else "wait"

    @property
    def waits(self) -> Wait | None:
        """The wait of a wait step; a duration alone is the short form."""
        return self.wait if self.wait is None or isinstance(self.wait, Wait) else Wait(for_=self.wait)

    @property
    def kinds(self) -> list[str]:
        """The actions that are set; exactly one is valid."""
        names = ("task", "workflow", "approval", "event", "wait")
        return [name for name in names if getattr(self, name) is not None]


class StepDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Defaults for all steps."""

    queue: Name | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] | None = None
    timeout: Duration | None = None
    retries: RetryPolicy | None = None


class WorkflowSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow as users write it."""

    name: Name
    steps: Annotated[dict[Name, Step], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]
    schedule: ScheduleSpecs | None = None
    params: Params = {}
    defaults: StepDefaults = StepDefaults()
    outputs: Values = {}
    description: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    metadata: Values = {}
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] = 5
    timeout: Duration | None = None
    sla: Duration | None = None
    overlap: Overlap | None = None
    misfire: Misfire = Misfire()
    concurrency: Concurrency | None = None
    start_by: Duration | None = None
    finish_by: Duration | None = None
    max_gap: Duration | None = None
    paused: bool = False
    notify: Annotated[tuple[Notify, ...], msgspec.Meta(max_length=20)] = ()


def job_of(spec: WorkflowSpec) -> JobSpec:
    """The job whose executions are the runs. Schedules, policies and deadlines work as for any job."""
    return JobSpec(
        name=spec.name,
        task=WorkflowTask(steps=len(spec.steps)),
        schedule=spec.schedule,
        params=spec.params,
        description=spec.description,
        metadata=spec.metadata,
        priority=spec.priority,
        overlap=spec.overlap,
        misfire=spec.misfire,
        concurrency=spec.concurrency,
        start_by=spec.start_by,
        finish_by=spec.finish_by,
        max_gap=spec.max_gap,
        paused=spec.paused,
        notify=spec.notify,
        retries=RetryPolicy(max=0),
    )


def step_job(workflow: WorkflowSpec, name: str, step: Step, task: Task) -> JobSpec:
    """The definition for executions of a step."""
    defaults = workflow.defaults
    return JobSpec(
        artifacts_in=_numbered(step.artifacts_in, workflow) or None,
        name=f"{workflow.name}.{name}"[:128],
        task=task,
        queue=step.queue or defaults.queue,
        priority=_first(step.priority, defaults.priority, workflow.priority),
        timeout=step.timeout if step.timeout is not None else defaults.timeout,
        retries=step.retries
        or defaults.retries
        or (RetryPolicy(max=0) if step.delivery == "at_most_once" else RetryPolicy()),
        delivery=step.delivery,
        estimated_duration=step.estimated_duration,
        labels=step.labels,
        resources=step.resources,
        exclusive=step.exclusive,
        concurrency=step.concurrency,
        rate=step.rate,
        allow_plaintext=step.allow_plaintext,
    )


def _numbered(wanted: tuple[ArtifactIn, ...], workflow: WorkflowSpec) -> tuple[ArtifactIn, ...]:
    """Replace step names by step numbers, which runs use."""
    if not wanted:
        return ()
    numbers: dict[Any, int] = {name: number for number, name in enumerate(workflow.steps)}
    return tuple(msgspec.structs.replace(one, step=numbers.get(one.step)) for one in wanted)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)

"""Executions: submission, state, attempts, logs, artifacts, explanations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Name, Values
from mainspring.domain.execution import Outcome, State, Trigger
from mainspring.wire.message import Instant, Request, Response

Stream = Literal["stdout", "stderr", "system"]


def late_ms(due_at: datetime, started_at: datetime | None) -> int | None:
    """Return the start delay in milliseconds, at least 0; None if not started."""
    if started_at is None:
        return None
    return max(0, round((started_at - due_at).total_seconds() * 1000))


class Attempt(Response):
    attempt: int
    outcome: Outcome
    exit_code: int | None
    error: str | None
    started_at: datetime
    ended_at: datetime
    worker: str | None
    due_at: datetime | None = None
    queued_at: datetime | None = None
    duration_ms: int | None = None
    """How long it ran, measured by its worker; without a report, until it was declared lost."""

    @property
    def lasted_ms(self) -> int:
        """The duration; of an attempt that an older version recorded, the time until its result arrived."""
        if self.duration_ms is not None:
            return self.duration_ms
        return round((self.ended_at - self.started_at).total_seconds() * 1000)


class Progress(Response):
    """Progress as reported by a running attempt. `rate` is per second."""

    done: float
    total: float | None = None
    percent: float | None = None
    rate: float | None = None
    eta_s: float | None = None
    message: str | None = None


class StepOf(Response):
    """The run and step of an execution, and the item of a mapped or repeated step."""

    run_id: UUID
    workflow: str
    name: str
    item: int | None = None


class StartedBy(Response):
    """The trigger that started an execution, and the delivery that reached it.

    `event`: the event of a webhook, the state in which the execution `execution_id` ended, or the path of a file. The
    trigger may have been deleted since.
    """

    trigger_id: UUID
    trigger: str
    kind: str
    delivery: str
    event: str | None = None
    execution_id: UUID | None = None

    @property
    def what(self) -> str:
        """What happened, in a few words."""
        if self.execution_id is not None:
            return f"{self.event or 'ended'} {self.execution_id}"
        if self.kind == "files":
            return f"file {self.event or self.delivery}"
        if self.kind == "topic":
            return f"message {self.event or self.delivery}"
        return f"{self.event + ', ' if self.event else ''}delivery {self.delivery}"

    def __str__(self) -> str:
        return f"trigger {self.trigger}: {self.what}"


class Execution(Response):
    """One occurrence of a job, across its attempts. Lists omit `attempts` and the job's `metadata`.

    `started_at`, `worker` and `duration_ms` are those of its current attempt: null while it waits for the next one.
    """

    execution_id: UUID
    job_id: UUID
    job: str
    version: int
    state: State
    trigger: Trigger
    queue: str
    priority: int
    attempt: int
    fire_at: datetime
    due_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None
    exit_code: int | None
    worker: str | None
    cancelling: bool
    reason: str | None
    error: str | None
    result: Any
    params: Any
    created_by: str | None
    fires: int
    attempts: list[Attempt] = []
    backfill_id: UUID | None = None
    progress: Progress | None = None
    step: StepOf | None = None
    metadata: dict[str, Any] = {}
    started_by: StartedBy | None = None

    @property
    def title(self) -> str:
        """The display name: the job, or `workflow / step`, plus the workflow that the step starts."""
        if self.step is None:
            return self.job
        item = "" if self.step.item is None else f"[{self.step.item}]"
        inner = "" if self.job == self.step.workflow else f": {self.job}"
        return f"{self.step.workflow} / {self.step.name}{item}{inner}"

    @property
    def late_ms(self) -> int | None:
        """The start delay in milliseconds."""
        return late_ms(self.due_at, self.started_at)


class StreamedExecution(Execution, kw_only=True):
    """An execution in the live stream, with the event that led to its state."""

    event: str


class LifecycleEvent(Response):
    """An event in the life of an execution; `event` is its name in the event catalogue."""

    event: str
    at: datetime
    attempt: int | None = None
    text: str | None = None


class Artifact(Response):
    """A file stored by an execution; it is kept until `expires_at`."""

    name: str
    bytes: int
    sha256: str
    content_type: str
    attempt: int
    created_at: datetime
    expires_at: datetime


class LogChunk(Response):
    """A piece of the log. `received_at`: when the server stored it; null for logs of earlier versions."""

    attempt: int
    seq: int
    stream: Stream
    text: str
    received_at: datetime | None = None


class Retry(Response):
    """An attempt that failed, and when the next one is due."""

    attempt: int
    outcome: Outcome
    exit_code: int | None
    error: str | None
    due_at: datetime


class Logs(Response):
    """A part of a log. Pass `place` to the next request to continue after it.

    `retry` is set while the execution waits for its next attempt.
    """

    chunks: list[LogChunk]
    place: str
    complete: bool
    progress: Progress | None = None
    retry: Retry | None = None


class Reason(Response):
    """One reason why an execution waits: until when, or for which executions, if known."""

    code: str
    message: str
    until: datetime | None = None
    holders: list[UUID] = []


class Why(Response):
    """Why an execution does not run yet: reasons in the order in which they must be resolved.

    `started_by`: the trigger that started it.
    """

    execution_id: UUID | None
    job: str
    state: State | None
    reasons: list[Reason]
    started_by: StartedBy | None = None


class RunNow(Request):
    """Runs a job now, or at `at`; for a day, the same `key` returns the same execution.

    `fire_at` is the nominal time for templates; it defaults to the due time. With `reason`, even an empty one, the
    request is recorded in the audit log, as for executions that a user starts; programs omit it.
    """

    at: Instant | None = None
    fire_at: Instant | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    params: Values | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Requeue(Request):
    """Runs an ended execution again; `params` replaces its parameters."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    params: Values | None = None


class Cancel(Request):
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class BatchItem(Request, omit_defaults=True):
    """One execution to submit; `job` is a name or an id.

    Written without its defaults: a batch is a quarter as long, and is checked and decoded in a third of the time.
    """

    job: Name
    at: Instant | None = None
    fire_at: Instant | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    params: Values | None = None


class Batch(Request):
    items: Annotated[list[BatchItem], msgspec.Meta(min_length=1, max_length=1000)]


class Submitted(Response):
    """The outcome of one item of a batch, in the order of the request."""

    status: int
    execution_id: UUID | None = None
    error: str | None = None


class BatchAnswer(Response):
    items: list[Submitted]

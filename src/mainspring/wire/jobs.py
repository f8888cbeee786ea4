"""Jobs: definitions, versions, upcoming fires, fire ledger, dependencies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Duration, Name
from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec
from mainspring.domain.schedule.deadline import DeadlineKind, DeadlineState
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.wire.executions import StartedBy
from mainspring.wire.message import Instant, Request, Response

JobState = Literal["active", "paused", "finished", "deleted"]


class LastExecution(Response, gc=False):  # a list of 500 jobs has 10,000, which have no cycles
    execution_id: UUID
    state: State
    fire_at: datetime
    finished_at: datetime | None
    duration_ms: int | None


class Deadline(Response):
    """A deadline of a job: `ok`, `due` (a fire has not succeeded yet) or `missed`.

    `at` is the instant by which a success is, or was, expected; null if no fire is planned.
    """

    kind: DeadlineKind
    state: DeadlineState
    at: datetime | None


class Declaration(Response):
    """The code that declares a job. `edited`: a user has changed the job since; the next load of the code undoes it."""

    function: str
    version: int
    edited: bool


class Job(Response):
    """A job with its state. `spec` is the definition as submitted."""

    job_id: UUID
    name: str
    version: int
    state: JobState
    spec: JobSpec
    schedule_description: str | None
    next_fire_at: datetime | None
    last: list[LastExecution]
    pause_reason: str | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    deadlines: list[Deadline] = []
    warnings: list[str] = []
    declared: Declaration | None = None
    """Set if code declares the job, with the decorator of a function."""


class JobStats(Response):
    """Statistics of the executions of a job that ended since `since_at`. Percentiles are within 5 %.

    Durations are those of successes, in milliseconds. `success_ratio` is of those that ended; fires that were skipped
    are counted beside it.
    """

    job_id: UUID
    job: str
    since_at: datetime
    ended: int
    succeeded: int
    failed: int
    success_ratio: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    skipped: int = 0


class SuggestedSize(Response):
    """Sizes for a job, null where fewer than ten attempts are known: `memory` and `cpu` as resources are written."""

    memory: str | None
    cpu: str | None
    timeout_s: int | None


class JobSize(Response):
    """What the attempts of a job have used since `since_at`, and the sizes that this suggests.

    CPU time and memory are those of `attempts` attempts that ran a program (`shell`): `memory_max` in bytes, of the
    largest process, and at least what a worker itself needs; `cores_max` is the highest mean of one attempt. Durations
    are those of successes, within 5 %. `too_small` names resources of which attempts have used more than `requested`.
    """

    job_id: UUID
    job: str
    since_at: datetime
    attempts: int
    memory_max: int | None
    cores_max: float | None
    cores_mean: float | None
    succeeded: int
    p50_ms: float | None
    p95_ms: float | None
    longest_ms: float | None
    requested: dict[str, str]
    timeout_s: float
    suggested: SuggestedSize
    too_small: list[str]


class Version(Response):
    """One version of a job's definition; versions are immutable."""

    version: int
    spec: JobSpec
    created_at: datetime
    created_by: str
    tzdata: str | None = None
    """The time zone database version by which its stored instants were computed."""


class Rollback(Request):
    version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Change(Response):
    """The effect of an edit: the new definition, and the next fires before and after."""

    spec: JobSpec
    fires_before: list[datetime]
    fires_after: list[datetime]


class PlannedStart(Response):
    """When the execution of a flexible job's fire is expected to start; null if it is not planned yet.

    The plan may change until the fire. The execution that the fire creates keeps its start.
    """

    fire_at: datetime
    start_at: datetime | None
    window_end_at: datetime


class Fires(Response):
    """The next fires of a job in UTC, with notes on anything unusual, such as a skipped or repeated hour."""

    description: str
    timezone: str
    fires: list[datetime]
    notes: list[str]
    starts: list[PlannedStart] = []
    """Of a flexible job: the start of each fire."""


class PreviewRequest(Request):
    """A schedule to preview. `job` is the name from which `H` in a cron expression is derived."""

    schedule: ScheduleSpecs
    after: datetime | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=500)] = 10
    job: Name | None = None


class Preview(Response):
    """A schedule in words, its next fires in UTC, and notes on anything unusual."""

    description: str
    fires: list[datetime]
    notes: list[str]


class LedgerEntry(Response):
    """The outcome of one due instant; a skipped entry may stand for `fires` instants up to this one.

    `started_by`: the trigger that started it; without one, the schedule did.
    """

    fire_at: datetime
    state: State
    reason: str | None
    execution_id: UUID
    late_ms: int | None
    duration_ms: int | None
    fires: int
    note: str | None = None
    """Set if a clock change skipped local times: this instant stands for several of them."""
    started_by: StartedBy | None = None
    due_at: datetime | None = None
    """When it could start, if that is later than its fire: because of a window, jitter, a blackout or a retry."""


class Pause(Request):
    """With `until`, the job resumes automatically at that instant."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    until: Instant | None = None


class Resume(Request):
    """With `catch_up`, the misfire policy applies to fires missed during the pause; otherwise they are skipped."""

    catch_up: bool = False


class NewDependency(Request):
    """A job to depend on: the dependent job runs after it has succeeded.

    A success older than `timeout` does not count. If the dependent job has a schedule, its fires wait for the
    success, at most `wait`.
    """

    job: Name
    timeout: Duration | None = None
    wait: Duration | None = None


class Dependency(Response):
    """A dependency. `satisfied`: the job has succeeded since the dependent last ran, or was released by a user."""

    job: str
    job_id: UUID
    state: Literal["pending", "satisfied", "failed", "stale"]
    since_at: datetime
    succeeded_at: datetime | None
    timeout_s: float | None
    created_by: str
    wait_s: float | None = None
    freed_at: datetime | None = None
    freed_as: Literal["forced", "skipped"] | None = None
    freed_by: str | None = None
    reason: str | None = None
    deleted_at: datetime | None = None
    """The job was deleted and cannot succeed any more; remove the dependency."""


class Dependencies(Response):
    """The dependencies of a job, and the order of all connected jobs, each after those it depends on."""

    needs: list[Dependency]
    order: list[str]


class Release(Request):
    """Releases the jobs that depend on this one without its success."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]

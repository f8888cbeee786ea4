"""Jobs: definitions, versions, upcoming fires, fire ledger, dependencies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec
from mainspring.domain.schedule.deadline import DeadlineKind, DeadlineState
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.wire.message import Instant, Request, Response

JobState = Literal["active", "paused", "finished", "deleted"]


class LastExecution(Response):
    execution_id: UUID
    state: State
    fire_at: datetime
    finished_at: datetime | None
    duration_ms: int | None


class Deadline(Response):
    """What a job promised, judged now: `ok`, `due` (a fire has come and has not succeeded yet) or `missed`.

    `at` is the instant by which a success is, or was, expected; null if no fire lies ahead.
    """

    kind: DeadlineKind
    state: DeadlineState
    at: datetime | None


class Job(Response):
    """A job with what the server knows about it. `spec` is the definition as it was written."""

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


class Version(Response):
    """One version of a job's definition; it never changes."""

    version: int
    spec: JobSpec
    created_at: datetime
    created_by: str
    tzdata: str | None = None
    """The time zone rules that its stored instants were computed by."""


class Rollback(Request):
    version: Annotated[int, msgspec.Meta(ge=1)]


class Change(Response):
    """What an edit would do: the definition, and the next fires before and after."""

    spec: JobSpec
    fires_before: list[datetime]
    fires_after: list[datetime]


class Fires(Response):
    """The next fires of a job, in UTC, with notes on anything unusual (a skipped or repeated hour)."""

    description: str
    timezone: str
    fires: list[datetime]
    notes: list[str]


class PreviewRequest(Request):
    """A schedule to try out. `job` is the name that `H` in a cron expression is spread by."""

    schedule: ScheduleSpecs
    after: datetime | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=500)] = 10
    job: str | None = None


class Preview(Response):
    """What a schedule means: a sentence, its next fires in UTC, and anything unusual about them."""

    description: str
    fires: list[datetime]
    notes: list[str]


class LedgerEntry(Response):
    """What became of one due instant; a skipped one may stand for `fires` instants up to this."""

    fire_at: datetime
    state: State
    reason: str | None
    execution_id: UUID
    late_ms: int | None
    duration_ms: int | None
    fires: int
    note: str | None = None
    """What the clocks did: this instant stands for several that do not exist."""


class Pause(Request):
    """With `until`, the job is resumed by itself then."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    until: Instant | None = None


class Resume(Request):
    """With `catch_up`, the misfire policy applies to what came due during the pause; else that is skipped."""

    catch_up: bool = False


class NewDependency(Request):
    """Executes the job when this one has succeeded; a success longer ago than `timeout` does not count.

    A fire of a job with a schedule waits for it, at most `wait`.
    """

    job: str
    timeout: str | int | float | None = None
    wait: str | int | float | None = None


class Dependency(Response):
    """A job that another needs. `satisfied`: it has succeeded since that one last was executed, or was let go."""

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
    """It is not there any more and can't succeed: remove the need."""


class Dependencies(Response):
    """What a job needs, and all jobs that hang together with it, each after those it needs."""

    needs: list[Dependency]
    order: list[str]


class Release(Request):
    """Lets the jobs that need this one go without its success."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]

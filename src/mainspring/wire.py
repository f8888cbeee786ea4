"""What travels over HTTP: the answers of the API, and the protocol between api and workers.

Instants are RFC 3339 in UTC, durations in answers are seconds or milliseconds as their names say.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from mainspring.domain.alert import AlertState, Rule, Severity
from mainspring.domain.channel import Target
from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.execution import Outcome, State, Trigger
from mainspring.domain.job import Definition, JobSpec
from mainspring.domain.queue import QueueSettings
from mainspring.domain.schedule.backfill import BackfillState, Order, Reprocess
from mainspring.domain.schedule.deadline import DeadlineKind, DeadlineState
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.domain.workflow.spec import RunState, StepKind, StepState, WorkflowSpec

T = TypeVar("T")

PROTOCOL = "1"
"""Version of the worker protocol; a worker sends it in the header `Mainspring-Protocol`."""

JobState = Literal["active", "paused", "finished", "deleted"]
WorkerState = Literal["idle", "busy", "draining", "suspect", "lost", "offline"]
"""`suspect` has missed heartbeats, `lost` stopped without a word, `offline` said goodbye."""
Stream = Literal["stdout", "stderr", "system"]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""In requests: an instant that says its offset."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Of a resource: cpu in thousandths of a core, memory and disk in bytes, anything else counted."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer is a frozen value."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every request body refuses unknown fields."""


def late_ms(due_at: datetime, started_at: datetime | None) -> int | None:
    """Milliseconds from due to started; negative never."""
    if started_at is None:
        return None
    return max(0, round((started_at - due_at).total_seconds() * 1000))


class Page(Answer, Generic[T]):
    """One page of a list. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None


class LastExecution(Answer):
    execution_id: UUID
    state: State
    fire_at: datetime
    finished_at: datetime | None
    duration_ms: int | None


class Deadline(Answer):
    """What a job promised, judged now: `ok`, `due` (a fire has come and has not succeeded yet) or `missed`.

    `at` is the instant by which a success is, or was, expected; null if no fire lies ahead.
    """

    kind: DeadlineKind
    state: DeadlineState
    at: datetime | None


class Job(Answer):
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


class Fires(Answer):
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


class Preview(Answer):
    """What a schedule means: a sentence, its next fires in UTC, and anything unusual about them."""

    description: str
    fires: list[datetime]
    notes: list[str]


class Version(Answer):
    """One version of a job's definition; it never changes."""

    version: int
    spec: JobSpec
    created_at: datetime
    created_by: str
    tzdata: str | None = None
    """The time zone rules that its stored instants were computed by."""


class Rollback(Request):
    version: Annotated[int, msgspec.Meta(ge=1)]


class Change(Answer):
    """What an edit would do: the definition, and the next fires before and after."""

    spec: JobSpec
    fires_before: list[datetime]
    fires_after: list[datetime]


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Days by date, or by rule: the three day fields of a cron expression, such as `25 12 *` or `* * SAT,SUN`.

    Schedules do not fire on them (`exclude`), or on no others (`include`).
    """

    dates: Annotated[list[date], msgspec.Meta(max_length=3650)] = []
    rules: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    mode: Literal["exclude", "include"] = "exclude"


class Calendar(Answer):
    """A calendar as it is now; `jobs` says how many jobs follow it."""

    name: str
    version: int
    days: CalendarDays
    jobs: int
    created_at: datetime
    created_by: str


class CalendarVersion(Answer):
    """One version of a calendar; it never changes."""

    version: int
    days: CalendarDays
    created_at: datetime
    created_by: str


class ClosedDays(Answer):
    """Which of the days from `first` to `last` are closed."""

    first: date
    last: date
    closed: list[date]


class JobFires(Answer):
    """The next fires of a job, before and after."""

    job: str
    fires_before: list[datetime]
    fires_after: list[datetime]


class CalendarChange(Answer):
    """What an edit of a calendar would do: how many jobs get other fires, and the first few of them."""

    jobs: int
    changed: list[JobFires]


class NewBlackout(Request):
    """A window in which no fire starts: from `start_at` to `end_at`, or `lasts` from each fire of `schedule` on.

    It holds for the whole tenant, for a `queue`, or for a `job` by name or id.
    """

    start_at: Instant | None = None
    end_at: Instant | None = None
    schedule: ScheduleSpecs | None = None
    lasts: str | int | float | None = None
    queue: str | None = None
    job: str | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class NewReservation(Request):
    """Places on workers that are kept free: `slots` of them, each with all of `resources`, from `start_at` to `end_at`.

    They are for the whole tenant, for a `queue`, or for a `job` by name or id. `anyway`: workers with them may come.
    """

    name: str
    start_at: Instant
    end_at: Instant
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    resources: Annotated[dict[str, str | int | float], msgspec.Meta(max_length=100)] = {}
    labels: Annotated[dict[str, str], msgspec.Meta(max_length=100)] = {}
    queue: str | None = None
    job: str | None = None
    shared: bool = False
    anyway: bool = False
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Reservation(Answer):
    """A reservation. `places` says on which workers how many are kept, as things are now."""

    reservation_id: UUID
    name: str
    start_at: datetime
    end_at: datetime
    slots: int
    resources: dict[str, int]
    labels: dict[str, str]
    queue: str | None
    job: str | None
    shared: bool
    begun: bool
    places: dict[str, int]
    reason: str
    created_at: datetime
    created_by: str
    warnings: list[str] = []


class Blackout(Answer):
    """A blackout. `holds_until` is the end of the window that holds now, `next_at` the beginning of the next one."""

    blackout_id: UUID
    queue: str | None
    job: str | None
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    lasts_s: float | None
    description: str
    reason: str
    holds_until: datetime | None
    next_at: datetime | None
    created_at: datetime
    created_by: str


class LedgerEntry(Answer):
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


class Attempt(Answer):
    attempt: int
    outcome: Outcome
    exit_code: int | None
    error: str | None
    started_at: datetime
    ended_at: datetime
    worker: str | None
    due_at: datetime | None = None
    queued_at: datetime | None = None


class Progress(Answer):
    """How far a running attempt is, by its own report. `rate` is per second."""

    done: float
    total: float | None = None
    percent: float | None = None
    rate: float | None = None
    eta_s: float | None = None
    message: str | None = None


class StepOf(Answer):
    """Of which run an execution is a step, and of a mapped or repeated one which item."""

    run_id: UUID
    workflow: str
    name: str
    item: int | None = None


class Execution(Answer):
    """One occurrence of a job, across its attempts. Lists leave out `attempts` and the job's `metadata`."""

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

    @property
    def title(self) -> str:
        """What people call it: its job; of a step `workflow / step`, and which workflow it is if it is one."""
        if self.step is None:
            return self.job
        item = "" if self.step.item is None else f"[{self.step.item}]"
        inner = "" if self.job == self.step.workflow else f": {self.job}"
        return f"{self.step.workflow} / {self.step.name}{item}{inner}"

    @property
    def late_ms(self) -> int | None:
        """From due to started; negative never."""
        return late_ms(self.due_at, self.started_at)


class Artifact(Answer):
    """A file that an execution has left; it is kept until `expires_at`."""

    name: str
    bytes: int
    sha256: str
    content_type: str
    attempt: int
    created_at: datetime
    expires_at: datetime


class LogChunk(Answer):
    """A piece of output. `place` names the last chunk read, to go on from there."""

    attempt: int
    seq: int
    stream: Stream
    text: str


class Logs(Answer):
    chunks: list[LogChunk]
    place: str
    complete: bool
    progress: Progress | None = None


class Worker(Answer):
    worker_id: UUID
    name: str
    session_id: UUID
    state: WorkerState
    host: str
    version: str
    slots: int
    busy: int
    queues: list[str]
    kinds: list[str]
    labels: dict[str, str]
    started_at: datetime
    seen_at: datetime
    resources: dict[str, int] = {}
    shared: bool = False


class SchedulerProcess(Answer):
    """A scheduler process; `lost` ones died without a word, and peers own their shards."""

    scheduler_id: UUID
    name: str
    state: Literal["active", "draining", "lost"]
    host: str
    version: str
    shards: int
    started_at: datetime
    seen_at: datetime


class Shard(Answer):
    """Who decides the fires of a slice of the jobs. `lag_s`: everything that was due so long ago is decided."""

    shard: int
    owner: str | None
    epoch: int
    lease_expires_at: datetime | None
    watermark: datetime
    lag_s: float


class Shards(Answer):
    schedulers: list[SchedulerProcess]
    shards: list[Shard]


class Health(Answer):
    status: Literal["ok", "unavailable"]
    version: str
    schema_version: int
    checks: dict[str, str] = {}


class Finding(Answer):
    """One offender against one promise, found by the doctor."""

    check: str
    offender: str
    what: str


class Diagnosis(Answer):
    healthy: bool
    checks: dict[str, str]
    findings: list[Finding]
    tzdata: str = ""
    """The time zone rules this server computes by."""
    notes: list[str] = []


class Queue(Answer):
    """A queue: its settings, and what waits and runs. Beyond 10,000 in a line, `depth` is estimated and not `exact`."""

    name: str
    settings: QueueSettings
    depth: int
    exact: bool
    by_priority: dict[str, int]
    oldest_s: float
    running: int
    workers: int
    slots: int


class QueueLoad(Answer):
    """What an autoscaler wants to know of a queue. `slots` are those of its live workers, `reserved` places that are
    kept for it alone; `wanted_slots` would run all that waits and runs now, and be in use to `target`."""

    depth: int
    oldest_s: float
    running: int
    workers: int
    slots: int
    reserved: int
    utilization: float
    wanted_slots: int


class Scaling(Answer):
    queues: dict[str, QueueLoad]


class LimitHolder(Answer):
    execution_id: UUID
    job: str
    started_at: datetime


class LimitState(Answer):
    """A concurrency or rate key in use, and who holds its slots."""

    kind: Literal["concurrency", "rate"]
    key: str
    limit: int
    per_s: float | None
    next_at: datetime | None
    holders: list[LimitHolder]


class Queues(Answer):
    items: list[Queue]
    limits: list[LimitState]


class Reason(Answer):
    """One thing that holds an execution up: until when, or by which executions, if that is known."""

    code: str
    message: str
    until: datetime | None = None
    holders: list[UUID] = []


class Why(Answer):
    """Why an execution does not run yet, in the order the reasons must fall away."""

    execution_id: UUID | None
    job: str
    state: State | None
    reasons: list[Reason]


class LoginLink(Answer):
    path: str
    expires_at: datetime


class StreamedExecution(Execution, kw_only=True):
    """An execution as the live stream tells it, with the event that brought it where it is."""

    event: str


class LifecycleEvent(Answer):
    """Something that happened to an execution, by its name in the catalogue of events."""

    event: str
    at: datetime
    attempt: int | None = None
    text: str | None = None


class ChannelSpec(Request):
    """Where notices go. `events` are those it hears of by itself; `jobs` narrows the executions' (`etl-*`)."""

    target: Target
    events: Annotated[list[str], msgspec.Meta(max_length=50)] = []
    jobs: Annotated[list[str], msgspec.Meta(max_length=100)] = []


class NewChannel(ChannelSpec, kw_only=True):
    name: str


class Channel(Answer):
    """A channel. `target` has everything but its secrets, whose names are in `secrets` if they are set.

    `secret` is there once: when a webhook's signing secret was made for it.
    """

    name: str
    kind: str
    target: dict[str, Any]
    secrets: list[str]
    events: list[str]
    jobs: list[str]
    state: Literal["ok", "failing", "disabled"]
    pending: int
    created_at: datetime
    created_by: str
    failing_since: datetime | None = None
    last_error: str | None = None
    disabled_at: datetime | None = None
    secret: str | None = None


class ChannelTest(Answer):
    """What a receiver answered to a test message; `error` says why it does not count as taken."""

    delivered: bool
    status: int | None
    excerpt: str | None
    duration_ms: int
    error: str | None


class Delivery(Answer):
    """One event for one channel, and what became of it at the last try. `event_id` is the same at every try."""

    delivery_id: int
    event_id: UUID
    channel: str
    event: str
    state: Literal["pending", "sent", "dropped"]
    tries: int
    created_at: datetime
    tried_at: datetime | None
    next_at: datetime | None
    status: int | None
    excerpt: str | None
    error: str | None
    duration_ms: int | None
    data: dict[str, Any]


class Alert(Answer):
    """A rule that is, or was, broken. `told_at` is null while a silence holds the notice back."""

    alert_id: UUID
    rule: str
    key: str
    severity: Severity
    state: AlertState
    value: float
    threshold: float
    summary: str
    since_at: datetime
    fired_at: datetime | None
    told_at: datetime | None
    resolved_at: datetime | None


class AlertRule(Answer):
    """A rule; `built_in` ones can be changed, and come back as they were when what was written is deleted."""

    name: str
    rule: Rule
    means: str
    built_in: bool
    changed: bool
    updated_at: datetime | None = None
    updated_by: str | None = None


class NewSilence(Request):
    """Nobody is told of what fits the matchers: now until `end_at`, from `start_at` on, or again and again."""

    matchers: dict[str, str]
    start_at: Instant | None = None
    end_at: Instant | None = None
    schedule: ScheduleSpecs | None = None
    lasts: str | int | float | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Silence(Answer):
    silence_id: UUID
    matchers: dict[str, str]
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    lasts_s: float | None
    description: str
    reason: str
    holds_until: datetime | None
    created_at: datetime
    created_by: str


class Pause(Request):
    """With `until`, the job is resumed by itself then."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    until: Instant | None = None


class Resume(Request):
    """With `catch_up`, the misfire policy applies to what came due during the pause; else that is skipped."""

    catch_up: bool = False


class RunNow(Request):
    """Run a job now, or at a time; the same `key` is answered with the same execution for a day.

    `at` says when it is due; `fire_at` which nominal time it stands for in templates (when it is due, if left out).
    With `reason`, which may be empty, it is written to the audit, as what people start is; programs leave it out.
    """

    at: Instant | None = None
    fire_at: Instant | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    params: dict[str, Any] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Cancel(Request):
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class BatchItem(Request):
    """One execution to submit; `job` is a name or an id."""

    job: str
    at: Instant | None = None
    fire_at: Instant | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    params: dict[str, Any] | None = None


class Batch(Request):
    items: Annotated[list[BatchItem], msgspec.Meta(min_length=1, max_length=1000)]


class Submitted(Answer):
    """What became of one item of a batch, in the order of the request."""

    status: int
    execution_id: UUID | None = None
    error: str | None = None


class BatchAnswer(Answer):
    items: list[Submitted]


# Backfills ------------------------------------------------------------------------------------------


class BackfillRequest(Request):
    """A range of past instants to execute: from `from` up to, not including, `to` (now, if left out).

    `reprocess` says which instants: `none` those that have no execution or a skipped one, `failed` also those whose
    latest execution did not succeed, `all` every one. With `dry_run` nothing is written.
    """

    from_: Instant = msgspec.field(name="from")
    to: Instant | None = None
    reprocess: Reprocess = "none"
    order: Order = "oldest"
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    params: dict[str, Any] | None = None
    dry_run: bool = False


class BackfillPlan(Answer):
    """What a backfill would do: how many instants it would execute, the first of them, how many it leaves out."""

    instants: int
    left_out: int
    first: datetime | None
    last: datetime | None
    page: list[datetime]


class Backfill(Answer):
    """A range of past instants being executed. `executions` counts those made so far by their state."""

    backfill_id: UUID
    job_id: UUID
    job: str
    state: BackfillState
    from_: datetime = msgspec.field(name="from")
    to: datetime
    reprocess: Reprocess
    order: Order
    concurrency: int
    priority: int
    params: Any
    instants: int
    made: int
    left_out: int
    executions: dict[str, int]
    created_at: datetime
    created_by: str
    ended_at: datetime | None


# Dead letters ---------------------------------------------------------------------------------------


class DeadLetter(Answer):
    """An execution that failed or was lost for good. Its id is the execution's.

    `open` waits for a person; `replaying` has been made an execution again (`replayed_as`); `held` waits for the replay
    of another one (`replay_after`); `superseded` means that its replay failed too and has a dead letter of its own.
    """

    dead_letter_id: UUID
    job_id: UUID
    job: str
    version: int
    state: DeadLetterState
    ended_as: State
    trigger: Trigger
    queue: str
    fingerprint: str
    fire_at: datetime
    created_at: datetime
    exit_code: int | None
    reason: str | None
    error: str | None
    attempts: list[Attempt]
    params: Any
    new_params: Any
    replay_of: UUID | None
    claimed_by: str | None
    claimed_until: datetime | None
    note: str | None
    noted_by: str | None
    replayed_as: UUID | None
    replayed_at: datetime | None
    replayed_by: str | None
    replay_after: UUID | None
    resolved_by: UUID | None
    closed_at: datetime | None
    closed_by: str | None
    close_reason: str | None
    run_id: UUID | None = None
    """Of a step whose run has a dead letter too: what is decided about that one holds for this."""
    step: str | None = None
    """Of a step, its name behind that of its workflow."""
    definition: JobSpec | None = None
    """What was executed; told only of one dead letter at a time."""

    @property
    def title(self) -> str:
        """What people call it: its job, of a step `workflow / step`."""
        step = (self.step or "").removeprefix(f"{self.job}.")
        return f"{self.job} / {step}" if step not in ("", self.job) else self.job

    @property
    def what(self) -> str:
        """What went wrong, in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterGroup(Answer):
    """Open dead letters of one job with the same fingerprint. Beyond 10,000 the count is not `exact`."""

    job_id: UUID
    job: str
    fingerprint: str
    count: int
    exact: bool
    first_at: datetime
    last_at: datetime
    sample_id: UUID
    ended_as: State
    error: str | None
    reason: str | None

    @property
    def what(self) -> str:
        """What went wrong the last time, in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterChoice(Request):
    """Which open dead letters: some by id, or those of a job (by name or id), of one fingerprint; the oldest first."""

    ids: Annotated[list[UUID], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    job: str | None = None
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class DeadLetterClaim(DeadLetterChoice):
    """Claims for so long (`for`): nobody else can claim, edit, replay or dismiss them meanwhile."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    for_: str | int | float = msgspec.field(name="for", default="10m")


class DeadLetterClaimOne(Request):
    for_: str | int | float = msgspec.field(name="for", default="10m")


class DeadLetterEdit(Request):
    """A note, or the parameters that a replay is given instead of the old ones. What is left out stays."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] | None = None
    params: dict[str, Any] | None = None


class ReplayOne(Request):
    """Makes an execution of the job as it is now. `params` replaces the parameters."""

    params: dict[str, Any] | None = None
    dry_run: bool = False


class ReplayMany(DeadLetterChoice):
    """Replays many: at a `rate` such as `10/1m`; with `canary` one first, and the others only if that succeeds."""

    rate: str | None = None
    canary: bool = False
    dry_run: bool = False


class ReplayItem(Answer):
    """What becomes of one dead letter: an execution, due then; a place behind the canary; or a problem."""

    dead_letter_id: UUID
    execution_id: UUID | None = None
    due_at: datetime | None = None
    problem: str | None = None


class Replay(Answer):
    """`replayed` become executions, `held` wait for the canary, `refused` stay open. `items` has the first hundred."""

    dry_run: bool
    replayed: int
    held: int
    refused: int
    items: list[ReplayItem]
    canary: UUID | None = None


class Dismiss(Request):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class DismissMany(DeadLetterChoice, kw_only=True):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    dry_run: bool = False


class Dismissed(Answer):
    """How many were dismissed, or would be."""

    dismissed: int
    dry_run: bool = False


# The worker protocol --------------------------------------------------------------------------------


class Register(Request):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    host: str
    version: str
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    queues: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]
    kinds: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]
    labels: dict[str, str] = {}
    resources: Annotated[dict[str, Amount], msgspec.Meta(max_length=100)] = {}
    shared: bool = False
    schemas: Annotated[dict[str, dict[str, Any]], msgspec.Meta(max_length=100)] | msgspec.UnsetType = msgspec.UNSET
    """Of kinds that plug-ins add: the JSON Schema of their settings."""
    takes: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    """Parts of the protocol that older workers do not understand: `preempt`."""


class Registered(Answer):
    session_id: UUID
    lease_s: float
    heartbeat_s: float
    takes: list[str] = []
    """Parts of the protocol that older servers refuse: `progress`, `no_retry`, `checkpoints`, `artifacts`,
    `artifacts_in`."""


class Poll(Request):
    """A worker asks for work: it has `free` slots and waits up to `wait_s`. `resources` is what is left of its own;
    null: all of it."""

    session_id: UUID
    free: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 30.0
    resources: dict[str, int] | None = None


class Assignment(Answer, array_like=True):
    """One attempt to make. The definition is found under `definition` in the same answer."""

    execution_id: UUID
    attempt: int
    definition: str
    job_id: UUID
    fire_at: datetime
    params: Any


class Preempt(Answer, array_like=True):
    """An attempt that is to make room: it is asked to end, and goes on later."""

    execution_id: UUID
    attempt: int


class Polled(Answer):
    executions: list[Assignment]
    definitions: dict[str, Definition]
    cancels: list[UUID]
    preempts: list[Preempt] = []


class Output(Request, array_like=True):
    execution_id: UUID
    attempt: int
    seq: int
    stream: Stream
    data: bytes


class Result(Request, array_like=True):
    """How one attempt ended, as its worker saw it."""

    execution_id: UUID
    attempt: int
    outcome: Outcome
    duration_ms: int
    exit_code: int | None = None
    error: str | None = None
    result: Any = None


class Results(Request, omit_defaults=True):
    """`no_retry` names results that another try would not change."""

    session_id: UUID
    results: Annotated[list[Result], msgspec.Meta(max_length=5000)]
    output: Annotated[list[Output], msgspec.Meta(max_length=5000)] = []
    no_retry: Annotated[list[UUID], msgspec.Meta(max_length=5000)] = []


class Workflow(Answer):
    """A workflow as it is now; `order` has each step after all it needs."""

    job_id: UUID
    name: str
    version: int
    state: JobState
    spec: WorkflowSpec
    order: list[str]
    schedule_description: str | None
    next_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime
    updated_by: str


class NewDependency(Request):
    """Executes the job when this one has succeeded; a success longer ago than `timeout` does not count.

    A fire of a job with a schedule waits for it, at most `wait`.
    """

    job: str
    timeout: str | int | float | None = None
    wait: str | int | float | None = None


class Dependency(Answer):
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


class Dependencies(Answer):
    """What a job needs, and all jobs that hang together with it, each after those it needs."""

    needs: list[Dependency]
    order: list[str]


class AuditEntry(Answer):
    """What somebody did: `action` to the `subject`, which is an id, of a step its run's, or the name of a queue."""

    audit_id: int
    at: datetime
    actor: str
    action: str
    subject: str
    name: str | None = None
    reason: str | None = None
    details: Any = None


class Release(Request):
    """Lets the jobs that need this one go without its success."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]


class WorkflowOrder(Answer):
    """What a dry run tells: the steps of a workflow that is right, each after all it needs."""

    order: list[str]


class WorkflowVersion(Answer):
    """What one version of a workflow says."""

    version: int
    spec: WorkflowSpec
    order: list[str]


class WorkflowChange(Answer):
    """One version of a workflow, and what differs from the one before: fields, and steps by name."""

    version: int
    created_at: datetime
    created_by: str
    steps: int
    fields: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []


class WorkflowLine(Answer):
    """A workflow in a list."""

    job_id: UUID
    name: str
    version: int
    steps: int
    paused: bool
    updated_at: datetime


class RunRequest(Request):
    """Starts a run; the same `key` is answered with the same run for a day.

    With `reason`, which may be empty, it is written to the audit, as what people start is; programs leave it out.
    """

    params: dict[str, Any] | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Rerun(Request):
    """Repeats a run from a step on; without a name, from those that did not succeed."""

    from_step: str | None = None


class Decision(Request):
    """The answer to an approval."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class Override(Request):
    """Skips a step, or counts it as succeeded with this result."""

    reason: Annotated[str, msgspec.Meta(max_length=4000)]
    result: Any = None


class RunCancel(Request):
    reason: Annotated[str, msgspec.Meta(max_length=4000)] = ""


class RunEvent(Request):
    """What a step that waits for the event gets as its result."""

    payload: Any = None


class RunStep(Answer):
    """A step of a run, or an item of a mapped or repeated one.

    `critical`: it decided how long the run took; `slack_s`: so much longer it could have taken all the same.
    `blocked_by` names the steps that failed and kept it from starting.
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
    """What an approval asks."""
    scope: str | None = None
    """Who may answer it: a token with this scope."""


class Run(Answer):
    """One occurrence of a workflow; `queued` until its turn has come, `skipped` if that came too late.

    Steps are told only of one run at a time.

    `failed` names steps that did not succeed, `blocked` those that could not start because of them.
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
    timeout_at: datetime | None = None
    sla_at: datetime | None = None
    reason: str | None = None
    created_by: str | None = None
    rerun_of: UUID | None = None
    failed: list[str] = []
    blocked: list[str] = []
    steps: list[RunStep] = []


class StepTimeline(Answer):
    """What happened to a step, in order: to itself (`step.…`) and to its execution; and its items, if it has some."""

    step: RunStep
    events: list[LifecycleEvent]
    items: list[RunStep] = []


class GridRun(Answer):
    """A run and the state of each of its steps, in the order of the grid; null: its version has no such step."""

    run_id: UUID
    state: RunState
    version: int
    fire_at: datetime
    started_at: datetime
    finished_at: datetime | None
    steps: list[StepState | None]


class Grid(Answer):
    """The last runs of a workflow, newest first."""

    workflow: str
    steps: list[str]
    runs: list[GridRun]


class Settled(Answer):
    """`stale` lists results nobody waits for any more: another attempt took over, or the execution has ended."""

    stale: list[UUID]


class ProgressReport(Request, array_like=True):
    """How far one attempt is."""

    execution_id: UUID
    attempt: int
    done: float
    total: float | None = None
    rate: float | None = None
    message: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Heartbeat(Request, omit_defaults=True):
    """A worker lives. `running` is all it holds, results not yet delivered included: the rest is given to others.

    `progress` has the last word of every running attempt that has one.
    """

    session_id: UUID
    running: Annotated[list[UUID], msgspec.Meta(max_length=100_000)]
    draining: bool = False
    progress: Annotated[list[ProgressReport], msgspec.Meta(max_length=10_000)] = []


class Beat(Answer):
    """`gone` lists what the worker holds and should not: it belongs to others, or has ended."""

    lease_s: float
    cancels: list[UUID]
    gone: list[UUID] = []
    preempts: list[Preempt] = []


class CheckpointReport(Request, array_like=True):
    """Where one attempt would go on."""

    execution_id: UUID
    attempt: int
    value: Any


class SaveCheckpoints(Request):
    session_id: UUID
    checkpoints: Annotated[list[CheckpointReport], msgspec.Meta(max_length=1000)]


class ReadCheckpoints(Request):
    session_id: UUID
    executions: Annotated[list[UUID], msgspec.Meta(max_length=10_000)]


class Checkpoints(Answer):
    """By execution, where earlier attempts left off; those that left nothing are not in it."""

    checkpoints: dict[UUID, Any]


class Declare(Request):
    """Jobs as a worker's code declares them."""

    jobs: Annotated[list[JobSpec], msgspec.Meta(min_length=1, max_length=1000)]


class Declared(Answer):
    """What became of one declared job, in the order of the request."""

    name: str
    change: Literal["created", "updated", "unchanged", "refused"]
    version: int | None = None
    problem: str | None = None


class DeclareAnswer(Answer):
    jobs: list[Declared]


class Goodbye(Request):
    session_id: UUID
    lost: bool = False

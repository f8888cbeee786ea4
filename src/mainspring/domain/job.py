"""Job definitions: a task, an optional schedule, and policies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from mainspring.domain.artifact import ArtifactIn, wanted_params, wanted_problems
from mainspring.domain.bounds import MAX_SMALL_LIST, Amounts, Count, Duration, Labels, Line, Name, Text, Texts, Values
from mainspring.domain.container import ContainerTask, container_problems, container_strings
from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.execution import Delivery
from mainspring.domain.flexible import Flexible, flexible_problems
from mainspring.domain.limit import Concurrency, Rate, key_problems
from mainspring.domain.params import Param, Params, declaration_problems
from mainspring.domain.placement.demand import SPOT
from mainspring.domain.placement.resources import parse_amount
from mainspring.domain.plugin import PluginTask, plugin_problems, plugin_strings
from mainspring.domain.retry import RetryPolicy, policy_problems
from mainspring.domain.sandbox import Sandbox, folder_problems, sandbox_problems
from mainspring.domain.schedule.schedule import ScheduleSpecs, is_one_time
from mainspring.domain.script import script_problems
from mainspring.domain.secret_use import reference_problems
from mainspring.domain.task import HttpTask, PythonTask, task_problems, template_strings
from mainspring.domain.template import param_names, template_problems

Overlap = Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"]
MisfirePolicy = Literal["latest", "all", "skip"]
NotificationKind = Literal["failed", "recovered", "late", "missed", "slow"]
Spot = Literal["never", "tolerate", "prefer"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
QUEUE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
RESERVED_ENV = "MAINSPRING_"
MAX_DEMAND_BYTES = 1800
"""Labels and resources of a job, as JSON: part of an index key, which has at most 2,704 bytes."""
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}\Z")
TIMEOUT_S = 3600.0
"""The default timeout, when neither the job nor its queue sets one."""
LONG_AFTER_S = 600.0
"""Jobs with a longer estimated duration use the queue `long`, unless they name a queue."""


class ShellTask(msgspec.Struct, frozen=True, tag="shell", tag_field="kind", forbid_unknown_fields=True):
    """Runs a program: argv as given, without a shell unless `shell` is true.

    Templates are filled in in single arguments and in `env`. A script, of `shell: true` or `sh -c`, has none: it takes
    values from its environment or its arguments.
    """

    argv: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=1000)]
    env: Texts = {}
    cwd: Line | None = None
    shell: bool = False


class NoopTask(msgspec.Struct, frozen=True, tag="noop", tag_field="kind", forbid_unknown_fields=True):
    """Does nothing and succeeds: for markers and measurements."""


class WorkflowTask(msgspec.Struct, frozen=True, tag="workflow", tag_field="kind", forbid_unknown_fields=True):
    """A workflow run. No worker executes it; its steps are separate executions."""

    steps: Count = 0


Task = ShellTask | NoopTask | HttpTask | PythonTask | ContainerTask | PluginTask | WorkflowTask


def kind_of(task: Task) -> str:
    """The task kind, which names the executor a worker needs."""
    return task.type if type(task) is PluginTask else task.__struct_config__.tag  # type: ignore[return-value]


class Misfire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The misfire policy: what happens to fires that were missed while no scheduler owned the shard."""

    policy: MisfirePolicy = "latest"
    window: Duration = "24h"
    max: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events notify which channels. `by` is the delay that counts as late, `factor` the slowdown for slow."""

    on: Annotated[tuple[NotificationKind, ...], msgspec.Meta(min_length=1, max_length=5)]
    to: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=20)]
    by: Duration = "1m"
    factor: Annotated[float, msgspec.Meta(ge=1.1, le=100)] = 2.0


class JobNotification(msgspec.Struct, frozen=True):
    """One kind of notification to one channel."""

    kind: NotificationKind
    channel: str
    by_s: float | None
    factor: float | None


PlaintextNames = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)]
"""Values that look like secrets and are none, as `env.NAME`, `headers.NAME`, `args.NAME` or `params.NAME`."""


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job as users write it. Durations are seconds, `10m` or ISO 8601."""

    name: Name
    task: Task
    schedule: ScheduleSpecs | None = None
    description: Annotated[str, msgspec.Meta(max_length=4000)] = ""
    metadata: Values = {}
    queue: Name | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] = 5
    timeout: Duration | None = None  # default: one hour, or the bound of the queue
    retries: RetryPolicy = RetryPolicy()
    overlap: Overlap | None = None
    misfire: Misfire = Misfire()
    delivery: Delivery = "at_least_once"
    paused: bool = False
    pause_after_failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    start_by: Duration | None = None
    finish_by: Duration | None = None
    max_gap: Duration | None = None
    params: Params = {}
    estimated_duration: Duration | None = None
    labels: Labels = {}
    resources: Amounts = {}
    exclusive: bool = False
    concurrency: Concurrency | None = None
    rate: Rate | None = None
    ordered: bool = False
    sandbox: Sandbox | None = None
    notify: Annotated[tuple[Notify, ...], msgspec.Meta(max_length=20)] = ()
    preemptible: bool | None = None  # may be preempted by more urgent executions
    artifacts_in: Annotated[tuple[ArtifactIn, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] | None = None
    allow_plaintext: PlaintextNames = ()
    flexible: Flexible | None = None  # its executions may start later than their fires
    spot: Spot | None = None  # whether workers on interruptible machines may run it; default: never

    @property
    def notifications(self) -> list[JobNotification]:
        """One entry per kind and channel; the last of several entries wins."""
        found = {
            (kind, channel): JobNotification(
                kind,
                channel,
                parse_duration(entry.by) if kind == "late" else None,
                entry.factor if kind == "slow" else None,
            )
            for entry in self.notify
            for kind in entry.on
            for channel in entry.to
        }
        return list(found.values())

    @property
    def queue_name(self) -> str:
        """The queue of the job; by default `long` if it is expected to take more than ten minutes, else `short`."""
        if self.queue is not None:
            return self.queue
        if self.estimated_duration in (None, "short", "long"):
            return str(self.estimated_duration or "short")
        assert self.estimated_duration is not None
        return "long" if parse_duration(self.estimated_duration) > LONG_AFTER_S else "short"

    @property
    def kind(self) -> str:
        """The task kind, which names the executor a worker needs."""
        return kind_of(self.task)

    @property
    def overlap_policy(self) -> Overlap:
        """Default: recurring jobs skip a fire while the previous execution lives; others may overlap."""
        if self.overlap is not None:
            return self.overlap
        return "skip" if self.schedule is not None and not is_one_time(self.schedule) else "allow"


class Definition(msgspec.Struct, frozen=True):
    """The immutable part of one job version that a worker needs to run it."""

    name: str
    task: Task
    timeout_s: float
    retries: RetryPolicy
    delivery: Delivery
    params: dict[str, Param] = {}
    timezone: str | None = None
    resources: dict[str, int] = {}
    exclusive: bool = False
    sandbox: Sandbox | None = None
    timed: bool = True  # set by the job; otherwise the queue may set it
    exceeds: bool = False  # its author was allowed to exceed the bound of the queue
    artifacts_in: Annotated[tuple[ArtifactIn, ...], msgspec.Meta(max_length=MAX_SMALL_LIST)] | None = None
    estimated_duration: Duration | None = None
    shard: int | None = None  # of its job
    allow_plaintext: PlaintextNames = ()
    secrets: bool = False  # an attempt fetches secrets before it starts

    def timeout_within(self, bound_s: float | None) -> float:
        """The timeout of an attempt in a queue with this bound."""
        if bound_s is None or self.exceeds:
            return self.timeout_s
        return min(self.timeout_s, bound_s) if self.timed else bound_s


def task_text(task: Task) -> str:
    """A short text for a task."""
    match task:
        case HttpTask(url=url, method=method):
            return f"{method} {url}"
        case PythonTask(function=function):
            return f"{function}()"
        case ShellTask(argv=argv):
            return " ".join(argv)
        case ContainerTask(image=image, command=command, args=args):
            return " ".join((image, *command, *args))
        case PluginTask(type=type_):
            return type_
        case WorkflowTask(steps=steps):
            return f"a workflow of {steps} steps"
        case _:
            return "nothing (noop)"


def splicing_problems(task: Task) -> list[Problem]:
    """Return a problem for every template inside code that the task would run."""
    if isinstance(task, ContainerTask):
        pointers = [f"/task/{field}/{n}" for field in ("command", "args") for n in range(len(getattr(task, field)))]
        return list(script_problems([*task.command, *task.args], pointers))
    if not isinstance(task, ShellTask):
        return []
    return list(script_problems(task.argv, [f"/task/argv/{n}" for n in range(len(task.argv))], shell=task.shell))


def needed_params(task: Task) -> frozenset[str]:
    """The parameters that a task's templates refer to."""
    texts: Iterable[str] = ()
    if isinstance(task, ShellTask):
        texts = (*task.argv, *task.env.values())
    elif isinstance(task, ContainerTask):
        texts = (text for _, text in container_strings(task))
    elif isinstance(task, PluginTask):
        texts = (text for _, text in plugin_strings(task))
    elif not isinstance(task, NoopTask | WorkflowTask):
        texts = (text for _, text in template_strings(task))
    return frozenset(name for text in texts for name in param_names(text))


def check(spec: JobSpec) -> None:
    """Raise Invalid with all problems that the types alone do not catch."""
    problems = problems_of(spec)
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))


def problems_of(spec: JobSpec) -> list[Problem]:
    """Return all problems that the types alone do not catch."""
    found: list[Problem] = []
    if not NAME.match(spec.name):
        found.append(
            Problem("/name", f"{spec.name!r} is not a job name", "letters, digits, '.', '_', '-'; at most 128")
        )
    if spec.queue is not None and not QUEUE.match(spec.queue):
        found.append(Problem("/queue", f"{spec.queue!r} is not a queue name", "lower case letters, digits, '_', '-'"))
    if spec.timeout is not None:
        found.extend(_duration_problem("/timeout", spec.timeout, 0.001))
    for pointer, value, least in (
        ("/retries/base", spec.retries.base, 0),
        ("/retries/cap", spec.retries.cap, 0),
        ("/misfire/window", spec.misfire.window, 0),
    ):
        found.extend(_duration_problem(pointer, value, least))
    found.extend(_deadline_problems(spec))
    found.extend(policy_problems(spec.retries))
    found.extend(_delivery_problems(spec))
    found.extend(_preemption_problems(spec))
    if spec.flexible is not None:
        found.extend(flexible_problems(spec.flexible, spec.schedule, spec.start_by))
    if isinstance(spec.task, ShellTask):
        found.extend(_shell_problems(spec.task))
    elif isinstance(spec.task, ContainerTask):
        found.extend(container_problems(spec.task))
        found.extend(splicing_problems(spec.task))
    elif isinstance(spec.task, PluginTask):
        found.extend(plugin_problems(spec.task))
    elif not isinstance(spec.task, NoopTask | WorkflowTask):
        found.extend(task_problems(spec.task))
    if spec.sandbox is not None:
        found.extend(sandbox_problems(spec.sandbox, spec.kind))
        if isinstance(spec.task, ShellTask) and spec.task.cwd is not None:
            found.extend(folder_problems(spec.sandbox, spec.task.cwd))
    needed = needed_params(spec.task)
    if spec.artifacts_in:
        found.extend(wanted_problems(spec.artifacts_in, spec.kind))
        needed |= wanted_params(spec.artifacts_in)
    found.extend(reference_problems(spec.task, spec.params))
    found.extend(declaration_problems(spec.params, needed, scheduled=spec.schedule is not None))
    found.extend(_demand_problems(spec))
    found.extend(_limit_problems(spec))
    for number, entry in enumerate(spec.notify):
        found.extend(_duration_problem(f"/notify/{number}/by", entry.by, 0.001))
    return found


def _delivery_problems(spec: JobSpec) -> list[Problem]:
    if spec.delivery == "at_most_once" and spec.retries.max > 0:
        return [
            Problem(
                "/retries/max",
                "an at_most_once job cannot be retried automatically",
                'say "retries": {"max": 0}, or use at_least_once',
            )
        ]
    if spec.delivery == "effectively_once" and not isinstance(spec.task, PythonTask):
        return [
            Problem(
                "/delivery",
                f"effectively_once needs a function that commits through ms.transaction; this is a {spec.kind} task",
                "use a python task; or at_least_once, and give the receiver the idempotency key that every task gets",
            )
        ]
    return []


def _preemption_problems(spec: JobSpec) -> list[Problem]:
    if spec.preemptible and spec.delivery == "at_most_once":
        message = "a preempted execution is started again, and an at_most_once job is never started twice"
        return [Problem("/preemptible", message, "leave it out, or use at_least_once")]
    if spec.spot in ("tolerate", "prefer") and spec.delivery == "at_most_once":
        message = "an execution that loses its spot worker is started again, and an at_most_once job is not"
        return [Problem("/spot", message, "use never, or at_least_once")]
    return []


def _deadline_problems(spec: JobSpec) -> list[Problem]:
    found: list[Problem] = []
    for pointer, value in (("/start_by", spec.start_by), ("/finish_by", spec.finish_by), ("/max_gap", spec.max_gap)):
        if value is not None:
            found.extend(_duration_problem(pointer, value, 0.001))
    if spec.finish_by is not None and (spec.schedule is None or is_one_time(spec.schedule)):
        found.append(
            Problem("/finish_by", "it counts from each fire, and this job has no recurring schedule", "use timeout")
        )
    return found


def _demand_problems(spec: JobSpec) -> list[Problem]:
    found = [
        Problem(f"/labels/{name}", f"{name}={value} is not a label", "letters, digits, '.', '_', '-', '/'; at most 63")
        for name, value in spec.labels.items()
        if not LABEL.match(name) or not (value == "*" or LABEL.match(value))
    ]
    if SPOT in spec.labels:
        message = "this label is set by mainspring worker --spot"
        found.append(Problem(f"/labels/{SPOT}", message, "say spot: tolerate, or spot: prefer"))
    for name, value in spec.resources.items():
        try:
            parse_amount(name, value)
        except ValueError as error:
            found.append(Problem(f"/resources/{name}", str(error), 'for example {"cpu": 2, "memory": "4Gi", "gpu": 1}'))
    if spec.estimated_duration not in (None, "short", "long"):
        found.extend(_duration_problem("/estimated_duration", spec.estimated_duration or 0, 0.001))
    size = len(msgspec.json.encode((spec.labels, dict.fromkeys(spec.resources, 10**15))))
    if size > MAX_DEMAND_BYTES:
        message = f"labels and resources take {size:,} bytes as JSON"
        found.append(Problem("/labels", message, f"use fewer or shorter ones: at most {MAX_DEMAND_BYTES:,} bytes"))
    return found


def _limit_problems(spec: JobSpec) -> list[Problem]:
    found: list[Problem] = []
    if spec.concurrency is not None:
        found.extend(key_problems("/concurrency/key", spec.concurrency.key))
        if spec.ordered:
            found.append(
                Problem(
                    "/ordered",
                    "an ordered job runs one execution at a time, so a concurrency key is not allowed",
                    "remove ordered or concurrency",
                )
            )
    if spec.rate is not None:
        found.extend(key_problems("/rate/key", spec.rate.key))
        found.extend(_duration_problem("/rate/per", spec.rate.per, 0.001))
    return found


def _duration_problem(pointer: str, value: str | int | float, least: float) -> list[Problem]:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        return [Problem(pointer, str(error), "seconds, 90s, 10m, 1h30m or PT3H")]
    if seconds < least:
        return [Problem(pointer, f"{value!r} is too short", "give a positive duration")]
    if seconds > MAX_S:
        return [Problem(pointer, f"{value!r} is too long", "at most 1,000 years")]
    return []


def _shell_problems(task: ShellTask) -> list[Problem]:
    found = [
        Problem(f"/task/argv/{i}", "NUL characters are not allowed in arguments", "remove it")
        for i, word in enumerate(task.argv)
        if "\0" in word
    ]
    if not task.argv[0]:
        found.append(Problem("/task/argv/0", "the program's name is empty", "name a program, such as echo"))
    if task.shell and len(task.argv) != 1:
        found.append(
            Problem("/task/argv", "with shell: true, argv is one script", 'for example ["echo $HOME | wc -c"]')
        )
    words = () if task.shell else enumerate(task.argv)
    found.extend(template_problems((f"/task/argv/{i}", word) for i, word in words))
    found.extend(template_problems((f"/task/env/{name}", value) for name, value in task.env.items()))
    found.extend(splicing_problems(task))
    for name, value in task.env.items():
        if not ENV_NAME.match(name) or name.startswith(RESERVED_ENV) or "\0" in value:
            found.append(
                Problem(
                    "/task/env",
                    f"{name!r} can't be set",
                    f"letters, digits and '_'; names that begin with {RESERVED_ENV} are reserved; no NUL in values",
                )
            )
    return found

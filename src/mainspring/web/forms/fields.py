"""The fields of the job form: label, input type, and JSON pointer into the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mainspring.domain.container import Pull
from mainspring.domain.execution import Delivery
from mainspring.domain.job import MisfirePolicy, NotificationKind, Overlap, Spot
from mainspring.domain.params import ParamType
from mainspring.domain.retry import Jitter, Retried
from mainspring.domain.schedule.calendar import Roll
from mainspring.domain.schedule.wallclock import Gap, OverlapHour
from mainspring.domain.task import Method

Kind = Literal[
    "text", "number", "words", "pairs", "headers", "list", "numbers", "json", "json_or_text", "flag", "choice"
]


@dataclass(frozen=True, slots=True)
class Field:
    """`pointer` is its place in the definition; `hint` is the placeholder: the default value if there is one."""

    name: str
    pointer: str
    label: str
    kind: Kind = "text"
    hint: str = ""
    help: str = ""
    options: tuple[str, ...] = ()
    known: str = ""
    """The list of suggestions: queues, calendars, channels or zones."""
    size: Literal["", "grow", "short"] = ""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """A section of the form; the fields in `rare` are collapsed."""

    title: str
    about: str
    fields: tuple[Field, ...]
    rare: tuple[Field, ...] = ()


NAME = Field("job", "/name", "Name", hint="nightly-report")
DESCRIPTION = Field("description", "/description", "Description", size="grow")
EXPRESSION = Field("expression", "/schedule", "Schedule", hint="0 2 * * *", size="grow")
ZONE = Field("zone", "/schedule/timezone", "Time zone", hint="UTC", known="zones")

TASKS: dict[str, tuple[Field, ...]] = {
    "shell": (
        Field(
            "command",
            "/task/argv",
            "Command",
            "words",
            "./report.sh --all",
            size="grow",
            help="The program and its arguments. Quotes group words.",
        ),
        Field(
            "shell",
            "/task/shell",
            "Run in a shell",
            "flag",
            help="The command is one script. It takes values from the environment below, not from templates.",
        ),
        Field("env", "/task/env", "Environment", "pairs", "REGION=eu", "One NAME=value per line.", size="grow"),
        Field("cwd", "/task/cwd", "Working directory", hint="/srv/app"),
    ),
    "http": (
        Field("url", "/task/url", "URL", hint="https://example.org/hook", size="grow"),
        Field("http_method", "/task/method", "Method", "choice", options=get_args(Method), size="short"),
        Field(
            "headers",
            "/task/headers",
            "Headers",
            "headers",
            "Accept: application/json",
            "One Name: value per line.",
            size="grow",
        ),
        Field(
            "body",
            "/task/body",
            "Body",
            "json_or_text",
            '{"day": "{{fire_at}}"}',
            "JSON objects and arrays are sent as JSON, anything else as text.",
            size="grow",
        ),
        Field("expect", "/task/expect", "Success statuses", "list", "2xx", "For example 200-299, 304."),
        Field("http_timeout", "/task/timeout", "Request timeout", hint="the job's timeout"),
        Field("follow_redirects", "/task/follow_redirects", "Redirects to follow", "number", "0"),
        Field("max_bytes", "/task/max_bytes", "Response size limit, bytes", "number", "1000000"),
    ),
    "python": (
        Field("function", "/task/function", "Function", hint="app.jobs:report", size="grow"),
        Field("args", "/task/args", "Arguments", "json", '{"region": "eu"}', "A JSON object.", size="grow"),
    ),
    "container": (
        Field("image", "/task/image", "Image", hint="busybox:1.36", size="grow"),
        Field("container_command", "/task/command", "Command", "words", "from the image", size="grow"),
        Field("container_args", "/task/args", "Arguments", "words", size="grow"),
        Field(
            "container_env", "/task/env", "Environment", "pairs", "REGION=eu", "One NAME=value per line.", size="grow"
        ),
        Field("memory", "/task/memory", "Memory limit", hint="512Mi"),
        Field("cpu", "/task/cpu", "CPU limit", hint="0.5"),
        Field("pids", "/task/pids", "Process limit", "number", "512"),
        Field("user", "/task/user", "User", hint="from the image"),
        Field("workdir", "/task/workdir", "Working directory", hint="from the image"),
        Field("pull", "/task/pull", "Pull policy", "choice", options=get_args(Pull)),
        Field("network", "/task/network", "Network access", "flag"),
        Field("read_only", "/task/read_only", "Read-only file system", "flag"),
    ),
    "noop": (),
}

SCHEDULE = (
    Field("start_at", "/schedule/start_at", "Start", hint="2027-01-01", help="In the schedule's time zone."),
    Field("end_at", "/schedule/end_at", "End", hint="2027-12-31"),
    Field("max_fires", "/schedule/max_fires", "Maximum fires", "number"),
    Field("calendar", "/schedule/calendar", "Calendar", known="calendars", help="No fires on its closed days."),
    Field("roll", "/schedule/roll", "On a closed day", "choice", "skip", options=get_args(Roll)),
    Field("jitter", "/schedule/jitter", "Jitter", hint="30s"),
    Field("gap", "/schedule/gap", "DST gap", "choice", options=get_args(Gap)),
    Field("overlap_hour", "/schedule/overlap_hour", "DST overlap", "choice", options=get_args(OverlapHour)),
)  # fmt: skip

GROUPS = (
    FieldGroup(
        "Missed and overlapping runs",
        "Fires missed while the scheduler was down, and fires while an execution is still running.",
        (
            Field(
                "overlap",
                "/overlap",
                "Overlap policy",
                "choice",
                "default",
                "Default: skip. One-time jobs: allow.",
                options=get_args(Overlap),
            ),
            Field("misfire", "/misfire/policy", "Misfire policy", "choice", options=get_args(MisfirePolicy)),
            Field("misfire_window", "/misfire/window", "Misfire window", hint="24h"),
            Field("misfire_max", "/misfire/max", "Maximum missed fires", "number", "100"),
        ),
    ),
    FieldGroup(
        "Retries and timeout",
        "Retry policy, timeout, and deadlines.",
        (
            Field("retries", "/retries/max", "Retries", "number", "3"),
            Field("retry_base", "/retries/base", "First backoff", hint="60s"),
            Field("retry_cap", "/retries/cap", "Maximum backoff", hint="1h"),
            Field("timeout", "/timeout", "Timeout per attempt", hint="1h"),
        ),
        (
            Field("retry_factor", "/retries/factor", "Backoff factor", "number", "2"),
            Field("retry_jitter", "/retries/jitter", "Backoff jitter", "choice", options=get_args(Jitter)),
            Field("retry_on", "/retries/on", "Retry on", "list", ", ".join(get_args(Retried))),
            Field("only_exit_codes", "/retries/only_exit_codes", "Retry only exit codes", "numbers", "75, 111"),
            Field("never_exit_codes", "/retries/never_exit_codes", "Never retry exit codes", "numbers", "2"),
            Field("only_errors", "/retries/only_errors", "Retry only errors", "list", "TimeoutError"),
            Field("never_errors", "/retries/never_errors", "Never retry errors", "list", "ValueError"),
            Field("delivery", "/delivery", "Delivery", "choice", options=get_args(Delivery)),
            Field("pause_after_failures", "/pause_after_failures", "Pause after failures in a row", "number", "never"),
            Field("start_by", "/start_by", "Start deadline", hint="never"),
            Field("finish_by", "/finish_by", "Finish deadline", hint="never"),
            Field(
                "flexible_before", "/flexible/before", "Flexible: end by", hint="06:00", help="Starts when cheapest."
            ),
            Field(
                "flexible_within", "/flexible/within", "Flexible: end within", hint="6h", help="Starts when cheapest."
            ),
            Field("flexible_takes", "/flexible/takes", "Flexible: expected duration", hint="measured"),
            Field("max_gap", "/max_gap", "Maximum time without success", hint="unlimited"),
        ),
    ),
    FieldGroup(
        "Queue and resources",
        "Queue, worker requirements, concurrency and rate limits.",
        (
            Field("queue", "/queue", "Queue", hint="short", known="queues"),
            Field("priority", "/priority", "Priority", "number", "5", "0 to 10, higher first."),
            Field("labels", "/labels", "Worker labels", "pairs", "zone=eu", "One name=value per line."),
            Field("resources", "/resources", "Resources", "pairs", "cpu=2", "For example cpu=2, memory=4Gi, gpu=1."),
        ),
        (
            Field(
                "estimated_duration",
                "/estimated_duration",
                "Expected duration",
                hint="short",
                help="Selects the queue short or long.",
            ),
            Field("concurrency_limit", "/concurrency/limit", "Concurrency limit", "number", "unlimited"),
            Field("concurrency_key", "/concurrency/key", "Concurrency key", hint="{{job}}"),
            Field("rate_limit", "/rate/limit", "Rate limit, starts", "number", "unlimited"),
            Field("rate_per", "/rate/per", "Per", hint="1s"),
            Field("rate_key", "/rate/key", "Rate key", hint="{{job}}"),
            Field("rate_burst", "/rate/burst", "Burst", "number", "1"),
            Field("exclusive", "/exclusive", "Exclusive worker", "flag"),
            Field("spot", "/spot", "Spot workers", "choice", "never", options=get_args(Spot)),
            Field("ordered", "/ordered", "In order, one at a time", "flag"),
            Field("sandbox", "/sandbox", "Sandbox", "json", "none", "A JSON object.", size="grow"),
            Field("artifacts_in", "/artifacts_in", "Input artifacts", "json", "none", "A JSON list.", size="grow"),
        ),
    ),
)
METADATA = Field("metadata", "/metadata", "Metadata", "json", '{"team": "finance"}', "A JSON object.", size="grow")

PLAIN = (NAME, DESCRIPTION, *(f for group in GROUPS for f in (*group.fields, *group.rare)), METADATA)
"""Fields that depend neither on the task kind nor on the schedule."""
NOTIFICATION_EVENTS = get_args(NotificationKind)
PARAM_TYPES = get_args(ParamType)
OPTIONAL = ("/concurrency", "/rate", "/flexible")
"""Objects that are absent if none of their fields is set."""

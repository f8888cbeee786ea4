"""The fields of the job form: where each stands in a definition, and how it is typed. Data, no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mainspring.domain.container import Pull
from mainspring.domain.execution import Delivery
from mainspring.domain.job import MisfirePolicy, NotificationKind, Overlap
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
    """`pointer` is its place in the definition; `hint` stands in the empty field and is the default if there is one."""

    name: str
    pointer: str
    label: str
    kind: Kind = "text"
    hint: str = ""
    help: str = ""
    options: tuple[str, ...] = ()
    known: str = ""
    """The list of known names that is offered: queues, calendars, channels or zones."""
    size: Literal["", "grow", "short"] = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that belong together; those in `rare` are folded away."""

    title: str
    about: str
    fields: tuple[Field, ...]
    rare: tuple[Field, ...] = ()


NAME = Field("job", "/name", "Name", hint="nightly-report")
DESCRIPTION = Field("description", "/description", "What it is for", size="grow")
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
            help="The program and its arguments; quotes keep words together.",
        ),
        Field("shell", "/task/shell", "through a shell", "flag"),
        Field("env", "/task/env", "Environment", "pairs", "REGION=eu", "One NAME=value on a line.", size="grow"),
        Field("cwd", "/task/cwd", "Folder on the worker", hint="/srv/app"),
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
            "One Name: value on a line.",
            size="grow",
        ),
        Field(
            "body",
            "/task/body",
            "Body",
            "json_or_text",
            '{"day": "{{fire_at}}"}',
            "A JSON object or array is sent as JSON, anything else as text.",
            size="grow",
        ),
        Field("expect", "/task/expect", "Success is", "list", "2xx", "Statuses, such as 200-299, 304"),
        Field("http_timeout", "/task/timeout", "Wait at most", hint="the timeout"),
        Field("follow_redirects", "/task/follow_redirects", "Follow redirects", "number", "0"),
        Field("max_bytes", "/task/max_bytes", "Keep bytes of the answer", "number", "1000000"),
    ),
    "python": (
        Field("function", "/task/function", "Function", hint="app.jobs:report", size="grow"),
        Field("args", "/task/args", "Arguments", "json", '{"region": "eu"}', "A JSON object.", size="grow"),
    ),
    "container": (
        Field("image", "/task/image", "Image", hint="busybox:1.36", size="grow"),
        Field("container_command", "/task/command", "Command", "words", "the image's", size="grow"),
        Field("container_args", "/task/args", "Arguments", "words", size="grow"),
        Field(
            "container_env", "/task/env", "Environment", "pairs", "REGION=eu", "One NAME=value on a line.", size="grow"
        ),
        Field("memory", "/task/memory", "Memory, at most", hint="512Mi"),
        Field("cpu", "/task/cpu", "Cores, at most", hint="0.5"),
        Field("pids", "/task/pids", "Processes, at most", "number", "512"),
        Field("user", "/task/user", "User", hint="the image's"),
        Field("workdir", "/task/workdir", "Folder", hint="the image's"),
        Field("pull", "/task/pull", "Fetch the image if", "choice", options=get_args(Pull)),
        Field("network", "/task/network", "with a network", "flag"),
        Field("read_only", "/task/read_only", "read only", "flag"),
    ),
    "noop": (),
}

SCHEDULE = (
    Field("start_at", "/schedule/start_at", "Not before", hint="2027-01-01", help="In the schedule's zone."),
    Field("end_at", "/schedule/end_at", "Not after", hint="2027-12-31"),
    Field("max_fires", "/schedule/max_fires", "At most fires", "number"),
    Field("calendar", "/schedule/calendar", "Calendar", known="calendars", help="No fire on its closed days."),
    Field("roll", "/schedule/roll", "On a closed day", "choice", "left out", options=get_args(Roll)),
    Field("jitter", "/schedule/jitter", "Spread starts over", hint="30s"),
    Field("gap", "/schedule/gap", "Hour the clocks skip", "choice", options=get_args(Gap)),
    Field("overlap_hour", "/schedule/overlap_hour", "Hour that comes twice", "choice", options=get_args(OverlapHour)),
)  # fmt: skip

GROUPS = (
    Group(
        "When it can't go as planned",
        "What happens to fires that were missed, and to one that comes while the last still runs.",
        (
            Field(
                "overlap",
                "/overlap",
                "While the last still runs",
                "choice",
                "skip it; one-time jobs overlap",
                options=get_args(Overlap),
            ),
            Field("misfire", "/misfire/policy", "Fires missed while down", "choice", options=get_args(MisfirePolicy)),
            Field("misfire_window", "/misfire/window", "Missed at most so long ago", hint="24h"),
            Field("misfire_max", "/misfire/max", "Make up for at most", "number", "100"),
        ),
    ),
    Group(
        "If it fails",
        "How often it is tried again, and when somebody should look.",
        (
            Field("retries", "/retries/max", "Retries", "number", "3"),
            Field("retry_base", "/retries/base", "First wait", hint="60s"),
            Field("retry_cap", "/retries/cap", "Longest wait", hint="1h"),
            Field("timeout", "/timeout", "An attempt may take", hint="1h"),
        ),
        (
            Field("retry_factor", "/retries/factor", "Each wait longer by", "number", "2"),
            Field("retry_jitter", "/retries/jitter", "Spread of waits", "choice", options=get_args(Jitter)),
            Field("retry_on", "/retries/on", "Outcomes to try again", "list", ", ".join(get_args(Retried))),
            Field("only_exit_codes", "/retries/only_exit_codes", "Only these exit codes", "numbers", "75, 111"),
            Field("never_exit_codes", "/retries/never_exit_codes", "Never these exit codes", "numbers", "2"),
            Field("only_errors", "/retries/only_errors", "Only these errors", "list", "TimeoutError"),
            Field("never_errors", "/retries/never_errors", "Never these errors", "list", "ValueError"),
            Field("delivery", "/delivery", "If a worker is lost", "choice", options=get_args(Delivery)),
            Field("pause_after_failures", "/pause_after_failures", "Pause after failures in a row", "number", "never"),
            Field("start_by", "/start_by", "Skip if not started after", hint="never"),
            Field("finish_by", "/finish_by", "A success is due after", hint="never"),
            Field("max_gap", "/max_gap", "Longest time without success", hint="any"),
        ),
    ),
    Group(
        "Where it runs",
        "The queue it waits in, what its worker must have, and how many may run at once.",
        (
            Field("queue", "/queue", "Queue", hint="short", known="queues"),
            Field("priority", "/priority", "Priority", "number", "5", "0 to 10, higher first."),
            Field("labels", "/labels", "Worker labels", "pairs", "zone=eu", "One name=value on a line."),
            Field("resources", "/resources", "Resources", "pairs", "cpu=2", "Such as cpu=2, memory=4Gi, gpu=1."),
        ),
        (
            Field(
                "estimated_duration",
                "/estimated_duration",
                "Expected to take",
                hint="short",
                help="Decides between the queues short and long.",
            ),
            Field("concurrency_limit", "/concurrency/limit", "At once, at most", "number", "any"),
            Field("concurrency_key", "/concurrency/key", "of all with the key", hint="{{job}}"),
            Field("rate_limit", "/rate/limit", "Starts, at most", "number", "any"),
            Field("rate_per", "/rate/per", "in", hint="1s"),
            Field("rate_key", "/rate/key", "of all with the key", hint="{{job}}"),
            Field("rate_burst", "/rate/burst", "at once after a pause", "number", "1"),
            Field("exclusive", "/exclusive", "a whole worker to itself", "flag"),
            Field("ordered", "/ordered", "one at a time, in order", "flag"),
            Field("sandbox", "/sandbox", "Sandbox", "json", "none", "A JSON object.", size="grow"),
            Field("artifacts_in", "/artifacts_in", "Files of others", "json", "none", "A JSON list.", size="grow"),
        ),
    ),
)
METADATA = Field("metadata", "/metadata", "Metadata", "json", '{"team": "finance"}', "A JSON object.", size="grow")

PLAIN = (NAME, DESCRIPTION, *(f for group in GROUPS for f in (*group.fields, *group.rare)), METADATA)
"""What does not depend on the kind of task, and is no part of the schedule."""
NOTICES = get_args(NotificationKind)
PARAM_TYPES = get_args(ParamType)
OPTIONAL = ("/concurrency", "/rate")
"""Objects that are not there at all while none of their fields is given."""

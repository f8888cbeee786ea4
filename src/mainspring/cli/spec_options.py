"""The options of `add` and `jobs edit` that describe a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click
import msgspec

from mainspring.cli.arguments import when
from mainspring.domain.execution import Delivery
from mainspring.domain.job import MisfirePolicy, Overlap, Spot
from mainspring.domain.params import ParamType
from mainspring.domain.retry import Jitter, Retried
from mainspring.domain.schedule.calendar import Roll
from mainspring.domain.task import Method

F = TypeVar("F", bound=Callable[..., Any])


def _at(text: str) -> str:
    """Resolve `+10m`; the server reads anything else in the time zone of the schedule."""
    return when(text).isoformat() if text.startswith("+") else text


def pair(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise click.BadParameter(f"{name!r} is not KEY=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


def value_of(text: str) -> Any:
    """A value of the command line: JSON if it parses as JSON, otherwise the text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in pair(ctx, param, given).items()}


def parameters(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Declarations of parameters: `region`, `region=eu`, `rows:integer=10`."""
    found: dict[str, dict[str, Any]] = {}
    for text in given:
        head, equals, default = text.partition("=")
        name, colon, kind = head.partition(":")
        if not name or (colon and kind not in get_args(ParamType)):
            kinds = ", ".join(get_args(ParamType))
            raise click.BadParameter(f"{text!r} is not NAME[:TYPE][=DEFAULT]; TYPE is one of {kinds}", ctx, param)
        value = default if kind == "string" else value_of(default)
        found[name] = {**({"type": kind} if colon else {}), **({"default": value} if equals else {})}
    return found


_SECTIONS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "Schedule": (
        click.option(
            "--cron", metavar="EXPR", help="Cron expression, such as '0 2 * * *'; six fields start with seconds."
        ),
        click.option("--every", metavar="DURATION", help="Interval, such as 5s, 10m, 1d or 1mo."),
        click.option("--at", type=_at, metavar="TIME", help="Time of a single fire in the zone of --tz, or +10m."),
        click.option("--rrule", metavar="RULE", help="Recurrence rule, such as 'FREQ=MONTHLY;BYDAY=1MO'."),
        click.option("--dtstart", metavar="TIME", help="Start of the recurrence rule.  [default: now]"),
        click.option("--start-at", metavar="TIME", help="No fire before this time or date, in the zone of --tz."),
        click.option("--end-at", metavar="TIME", help="No fire after this time or date, in the zone of --tz."),
        click.option(
            "--run-if-late/--no-run-if-late", default=None, help="With --at: run at once if the time has passed."
        ),
        click.option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin.  [default: UTC]"),
        click.option("--calendar", metavar="NAME", help="Calendar whose closed days are skipped."),
        click.option("--roll", type=click.Choice(get_args(Roll)), help="Move fires on closed days to this open day."),
        click.option("--jitter", metavar="DURATION", help="Maximum random delay of each fire."),
        click.option("--before", metavar="HH:MM", help="Flexible job: start when it is cheapest, end by then."),
        click.option("--within", metavar="DURATION", help="Flexible job: end within this time after the fire."),
        click.option("--takes", metavar="DURATION", help="Expected duration of a flexible job."),
        click.option(
            "--max-fires", type=click.IntRange(1), metavar="N", help="Number of fires; then the job is finished."
        ),
    ),
    "Task": (
        click.option("--http", metavar="URL", help="Call this URL instead of running a command."),
        click.option("--method", type=click.Choice(get_args(Method)), help="Method of --http.  [default: GET]"),
        click.option(
            "--header",
            "headers",
            multiple=True,
            callback=pair,
            metavar="KEY=VALUE",
            help="Header of --http. Repeatable.",
        ),
        click.option("--body", metavar="TEXT", help="Body of --http; JSON if it parses as JSON."),
        click.option("--container", metavar="IMAGE", help="Run this image; CMD replaces its arguments."),
        click.option("--network/--no-network", default=None, help="Give the container a network.  [default: no]"),
        click.option("--function", metavar="MODULE:NAME", help="Call this Python function, which a worker has loaded."),
        click.option(
            "--arg",
            "args",
            multiple=True,
            callback=values,
            metavar="KEY=VALUE",
            help="Argument of --function. Repeatable.",
        ),
        click.option(
            "--param",
            "params",
            multiple=True,
            callback=parameters,
            metavar="NAME[:TYPE][=DEFAULT]",
            help="Parameter that executions take, such as region=eu or rows:integer=10. Repeatable.",
        ),
        click.option(
            "--env", multiple=True, callback=pair, metavar="KEY=VALUE", help="Environment variable. Repeatable."
        ),
        click.option("--cwd", metavar="FOLDER", help="Working directory on the worker."),
        click.option("--description", metavar="TEXT", help="Description."),
    ),
    "Retries and timeout": (
        click.option(
            "--timeout", metavar="DURATION", help="Timeout of each attempt.  [default: 1h, or the queue's bound]"
        ),
        click.option("--retries", type=click.IntRange(0, 1000), metavar="N", help="Maximum retries.  [default: 3]"),
        click.option("--retry-base", metavar="DURATION", help="Delay before the first retry.  [default: 60s]"),
        click.option("--retry-cap", metavar="DURATION", help="Maximum delay between retries.  [default: 1h]"),
        click.option(
            "--retry-factor", type=click.FloatRange(1, 100), metavar="F", help="Growth of the delay.  [default: 2]"
        ),
        click.option(
            "--retry-jitter", type=click.Choice(get_args(Jitter)), help="Jitter of the delay.  [default: full]"
        ),
        click.option(
            "--retry-on",
            multiple=True,
            type=click.Choice(get_args(Retried)),
            help="Outcome to retry. Repeatable.  [default: all]",
        ),
        click.option(
            "--retry-exit-code", multiple=True, type=int, metavar="N", help="Retry only this exit code. Repeatable."
        ),
        click.option(
            "--no-retry-exit-code", multiple=True, type=int, metavar="N", help="Never retry this exit code. Repeatable."
        ),
        click.option("--retry-error", multiple=True, metavar="TYPE", help="Retry only this error type. Repeatable."),
        click.option(
            "--no-retry-error", multiple=True, metavar="TYPE", help="Never retry this error type. Repeatable."
        ),
    ),
    "Queue and placement": (
        click.option("--queue", metavar="NAME", help="Queue.  [default: short, or by --expect]"),
        click.option(
            "--priority", type=click.IntRange(0, 10), metavar="N", help="Priority, higher first.  [default: 5]"
        ),
        click.option(
            "--expect",
            "estimated_duration",
            metavar="DURATION",
            help="Expected duration; selects the queue short or long.",
        ),
        click.option(
            "--labels",
            multiple=True,
            callback=pair,
            metavar="KEY=VALUE",
            help="Label that the worker must have. Repeatable.",
        ),
        click.option(
            "--resources",
            multiple=True,
            callback=pair,
            metavar="KEY=VALUE",
            help="Resource of an attempt: cpu=2, memory=4Gi, gpu=1. Repeatable.",
        ),
        click.option("--exclusive", is_flag=True, default=None, help="Run alone on a worker."),
        click.option(
            "--spot",
            type=click.Choice(get_args(Spot)),
            help="Whether spot workers may run the job.  [default: never]",
        ),
        click.option(
            "--preemptible/--no-preemptible", default=None, help="Allow preemption by more urgent executions."
        ),
    ),
    "Policies and limits": (
        click.option(
            "--overlap",
            type=click.Choice(get_args(Overlap)),
            help="A fire while an execution is active.  [default: skip if recurring, else allow]",
        ),
        click.option(
            "--misfire",
            type=click.Choice(get_args(MisfirePolicy)),
            help="Fires missed while the scheduler was down.  [default: latest]",
        ),
        click.option(
            "--delivery",
            type=click.Choice(get_args(Delivery)),
            help="Guarantee if a worker is lost.  [default: at_least_once]",
        ),
        click.option("--ordered", is_flag=True, default=None, help="Run one execution at a time, in order of fire."),
        click.option(
            "--concurrency",
            metavar="[KEY=]N",
            help="Maximum concurrent executions of all jobs with this key, or of the job.",
        ),
        click.option("--rate", metavar="[KEY=]N/DURATION", help="Maximum starts per time, such as 10/1m."),
        click.option(
            "--pause-after-failures",
            type=click.IntRange(1, 1000),
            metavar="N",
            help="Pause the job after N failures in a row.",
        ),
    ),
    "Deadlines and notifications": (
        click.option("--start-by", metavar="DURATION", help="Maximum start delay; a later fire is skipped."),
        click.option("--finish-by", metavar="DURATION", help="Deadline for a success after each fire."),
        click.option("--max-gap", metavar="DURATION", help="Maximum time between two successes."),
        click.option(
            "--notify",
            multiple=True,
            callback=pair,
            metavar="EVENTS=CHANNELS",
            help="Notification, such as failed,recovered=ops. Events: failed, recovered, late, missed, slow.",
        ),
    ),
}


def spec_options(function: F) -> F:
    for options in reversed(_SECTIONS.values()):
        for option in reversed(options):
            function = option(function)
    return function


class SpecCommand(click.Command):
    """A command whose help groups the options of a job definition by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parameters = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        records = {str(p.name): record for p in parameters if (record := p.get_help_record(ctx)) is not None}
        for title, options in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(_option_name(option)) for option in options])
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))


def _option_name(option: Callable[[Any], Any]) -> str:
    def probe() -> None: ...

    option(probe)
    parameters: list[click.Parameter] = vars(probe)["__click_params__"]
    return str(parameters[0].name)

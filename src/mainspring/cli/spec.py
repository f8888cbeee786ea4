"""A job's definition from command line flags: for `add`, and for `jobs edit` as a change of what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from mainspring.cli.arguments import when
from mainspring.codec import decode, encode
from mainspring.display.definitions import as_json
from mainspring.domain.execution import Delivery
from mainspring.domain.job import JobSpec, MisfirePolicy, Overlap
from mainspring.domain.retry import Jitter, Retried
from mainspring.domain.schedule.calendar import Roll

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = ("cron", "every", "at", "rrule")
_BESIDE = ("tz", "dtstart", "calendar", "roll", "jitter", "max_fires")
_NAMES = {"tz": "timezone"}
_PLAIN = (
    "queue", "priority", "timeout", "overlap", "delivery", "description", "pause_after_failures", "start_by",
    "finish_by", "max_gap",
)  # fmt: skip
_FLAGS = ("ordered", "exclusive", "preemptible")
_RETRIES = {
    "retries": "max", "retry_base": "base", "retry_cap": "cap", "retry_factor": "factor", "retry_jitter": "jitter",
    "retry_on": "on", "retry_exit_code": "only_exit_codes", "no_retry_exit_code": "never_exit_codes",
    "retry_error": "only_errors", "no_retry_error": "never_errors",
}  # fmt: skip


def _at(text: str) -> str:
    """`+10m` becomes an instant; anything else is for the server to read in the schedule's zone."""
    return when(text).isoformat() if text.startswith("+") else text


def pair(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise click.BadParameter(f"{name!r} is not KEY=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


_OPTIONS = (
    click.option("--cron", metavar="EXPR", help="A cron expression, such as '0 2 * * *'; seconds may come first."),
    click.option("--every", metavar="D", help="An interval, such as 5s, 10m, 1d or 1mo."),
    click.option("--at", type=_at, metavar="T", help="Once, at a time in the zone; or +10m from now."),
    click.option("--rrule", metavar="RULE", help="A recurrence rule, such as 'FREQ=MONTHLY;BYDAY=1MO'."),
    click.option("--dtstart", metavar="T", help="Where the rule starts, in the zone.  [now]"),
    click.option("--tz", metavar="ZONE", help="The schedule's time zone, such as Europe/Berlin.  [UTC]"),
    click.option("--calendar", metavar="NAME", help="Do not fire on the closed days of this calendar."),
    click.option("--roll", type=click.Choice(get_args(Roll)), help="Fire on this open day instead."),
    click.option("--jitter", metavar="D", help="Start up to so much later, each time by another delay."),
    click.option("--max-fires", type=click.IntRange(1), metavar="N", help="The last fire is the N-th from now."),
    click.option("--queue", help="The line its executions wait in.  [short]"),
    click.option("--priority", type=click.IntRange(0, 10), help="0 to 10, higher first.  [5]"),
    click.option("--retries", type=click.IntRange(0, 1000), metavar="N", help="Retries after a failure.  [3]"),
    click.option("--retry-base", metavar="D", help="The wait before the first retry.  [60s]"),
    click.option("--retry-cap", metavar="D", help="The longest wait.  [1h]"),
    click.option("--retry-factor", type=click.FloatRange(1, 100), metavar="F", help="Each wait so much longer.  [2]"),
    click.option("--retry-jitter", type=click.Choice(get_args(Jitter)), help="How waits are spread.  [full]"),
    click.option("--retry-on", multiple=True, type=click.Choice(get_args(Retried)), help="Retry only these outcomes."),
    click.option("--retry-exit-code", multiple=True, type=int, metavar="N", help="Retry only this code; repeatable."),
    click.option("--no-retry-exit-code", multiple=True, type=int, metavar="N", help="Never retry this code."),
    click.option("--retry-error", multiple=True, metavar="TYPE", help="Retry only this error type; repeatable."),
    click.option("--no-retry-error", multiple=True, metavar="TYPE", help="Never retry this error type."),
    click.option("--timeout", metavar="D", help="How long one attempt may take.  [1h, or the queue's]"),
    click.option("--env", multiple=True, callback=pair, metavar="K=V", help="Set a variable; repeatable."),
    click.option("--cwd", metavar="DIR", help="The folder to run in, on the worker."),
    click.option("--overlap", type=click.Choice(get_args(Overlap)), help="A fire while the last still runs."),
    click.option("--misfire", type=click.Choice(get_args(MisfirePolicy)), help="Fires missed while down."),
    click.option("--delivery", type=click.Choice(get_args(Delivery)), help="If a worker is lost midway."),
    click.option("--pause-after-failures", type=click.IntRange(1, 1000), metavar="N", help="Pause after N in a row."),
    click.option("--start-by", metavar="D", help="Skip what has not started so long after it was due."),
    click.option("--finish-by", metavar="D", help="A success is expected so long after each fire."),
    click.option("--max-gap", metavar="D", help="So long without a success is too long."),
    click.option("--description", metavar="TEXT", help="What it is for."),
    click.option(
        "--expect", "estimated_duration", metavar="D", help="How long it takes; decides between short and long."
    ),
    click.option("--labels", multiple=True, callback=pair, metavar="K=V", help="Only on workers with this label."),
    click.option("--resources", multiple=True, callback=pair, metavar="K=V", help="cpu=2, memory=4Gi, gpu=1, ..."),
    click.option("--exclusive", is_flag=True, default=None, help="A whole worker to itself."),
    click.option("--preemptible/--no-preemptible", default=None, help="More urgent work may take its place."),
    click.option("--ordered", is_flag=True, default=None, help="One execution at a time, in order."),
    click.option("--concurrency", metavar="[KEY=]N", help="At most N at once, of all jobs with that key.  [the job's]"),
    click.option("--rate", metavar="[KEY=]N/D", help="At most N starts in D, such as 10/1m."),
    click.option(
        "--notify",
        multiple=True,
        callback=pair,
        metavar="ON=CHANNEL",
        help="Tell channels, such as failed,recovered=ops. Also late, missed, slow. Repeatable.",
    ),
)


def spec_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def changed(spec: dict[str, Any], flags: dict[str, Any], argv: tuple[str, ...]) -> dict[str, Any]:
    """`spec` (as JSON values) with what the flags say; flags that were not given change nothing."""
    wanted: dict[str, Any] = {**spec, **{name: flags[name] for name in _PLAIN if flags[name] is not None}}
    if (schedule := _schedule(spec.get("schedule"), flags)) is not None:
        wanted["schedule"] = schedule
    retries = {field: flags[flag] for flag, field in _RETRIES.items() if flags.get(flag) not in (None, ())}
    if retries:
        wanted["retries"] = {**spec.get("retries", {}), **retries}
    if flags["misfire"] is not None:
        wanted["misfire"] = {**spec.get("misfire", {}), "policy": flags["misfire"]}
    for name in ("estimated_duration", *_FLAGS):
        if flags.get(name) is not None:
            wanted[name] = flags[name]
    for name in ("labels", "resources"):
        if flags.get(name):
            wanted[name] = {**spec.get(name, {}), **flags[name]}
    if flags.get("concurrency") is not None:
        wanted["concurrency"] = _concurrency(flags["concurrency"])
    if flags.get("rate") is not None:
        wanted["rate"] = _rate(flags["rate"])
    if flags.get("notify"):
        wanted["notify"] = [{"on": on.split(","), "to": to.split(",")} for on, to in flags["notify"].items()]
    wanted["task"] = _task(spec.get("task", {"kind": "shell"}), flags, argv)
    return wanted


def _concurrency(text: str) -> dict[str, Any]:
    key, _, limit = text.rpartition("=")
    if not limit.isdigit():
        raise click.UsageError(f"--concurrency {text!r}: write a number, or KEY=NUMBER")
    return {**({"key": key} if key else {}), "limit": int(limit)}


def _rate(text: str) -> dict[str, Any]:
    key, _, pace = text.rpartition("=")
    limit, slash, per = pace.partition("/")
    if not limit.isdigit() or not slash or not per:
        raise click.UsageError(f"--rate {text!r}: write starts per time, such as 10/1m or KEY=10/1m")
    return {**({"key": key} if key else {}), "limit": int(limit), "per": per if per[0].isdigit() else f"1{per}"}


def completed(spec: dict[str, Any]) -> dict[str, Any]:
    """`spec` with all defaults, as the server shows it."""
    return as_json(decode(encode(spec), JobSpec))


def _schedule(old: dict[str, Any] | list[Any] | None, flags: dict[str, Any]) -> dict[str, Any] | None:
    """The schedule that the flags ask for, None if they say nothing about it."""
    given = {kind: flags[kind] for kind in _KINDS if flags[kind] is not None}
    beside = {_NAMES.get(flag, flag): flags[flag] for flag in _BESIDE if flags[flag] is not None}
    if isinstance(old, list):
        if beside and not given:
            raise click.UsageError(
                "the job has a list of schedules: say which one replaces them, or change it by the API"
            )
        old = None
    if len(given) > 1:
        raise click.UsageError(f"a schedule is one of --cron, --every, --at and --rrule, not {' and '.join(given)}")
    if not given and beside and old is None:
        flag = next(flag for flag in _BESIDE if flags[flag] is not None).replace("_", "-")
        raise click.UsageError(f"--{flag} belongs to a schedule: add --cron, --every, --at or --rrule")
    if not given:
        return {**old, **beside} if old is not None and beside else None
    kept = {name: value for name, value in (old or {}).items() if value is not None}
    if not kept.keys() & given.keys():
        # Options of another kind of schedule would mean nothing any more; the zone still does.
        kept = {name: value for name, value in kept.items() if name == "timezone"}
    return {**kept, **given, **beside}


def _task(old: dict[str, Any], flags: dict[str, Any], argv: tuple[str, ...]) -> dict[str, Any]:
    task = dict(old)
    if argv:
        task["argv"] = list(argv)
    if flags["env"]:
        task["env"] = {**old.get("env", {}), **flags["env"]}
    if flags["cwd"] is not None:
        task["cwd"] = flags["cwd"]
    return task

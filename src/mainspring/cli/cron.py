"""`mainspring cron`: explain expressions without a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.group import Group
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Output, aligned, echo, print_message
from mainspring.clock import LAST_MS, instant, millis
from mainspring.display.times import both, now
from mainspring.domain.schedule.budget import BATCH_STEPS, steps
from mainspring.domain.schedule.schedule import Schedule, ScheduleSpec, compile_key, job_seed, notes, resolve

F = TypeVar("F", bound=Callable[..., Any])

FIRST_TENANT = 1


@click.group(cls=Group)
def cron() -> None:
    """Explain cron expressions and recurrence rules. Needs no server.

    EXPRESSION has five fields (minute, hour, day, month, weekday), six with seconds first, or is a name such as
    @daily. Or it is a recurrence rule (RFC 5545), such as 'FREQ=MONTHLY;BYDAY=1MO'. Set the time zone with --tz, or
    with TZ=Europe/Berlin in front of the fields.
    """


def expression_options(function: F) -> F:
    """Add the argument EXPRESSION and the options it depends on."""
    for option in (
        click.option("--job", metavar="NAME", help="Job name from which H is derived."),
        click.option("--dtstart", metavar="TIME", help="Start of a recurrence rule.  [default: now]"),
        click.option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin.  [default: UTC]"),
        click.argument("expression"),
    ):
        function = option(function)
    return function


@cron.command
@expression_options
@server_options(hidden=True)
def explain(expression: str, **given: str | None) -> None:
    """Describe EXPRESSION in words, with the next three fires."""
    out, asked = Output(current().output), now()
    with steps(BATCH_STEPS):
        key, schedule = read(expression, asked, **given)
        fires = fires_of(key, schedule, asked, schedule.between(millis(asked), LAST_MS, 3))
    if not out.is_text:
        out.value(fires)
        return
    echo(fires.description)
    _print(fires, indent="  next  ")


@cron.command("next")
@expression_options
@click.option("--after", type=when, metavar="TIME", help="Start (UTC without an offset), or +10m.  [default: now]")
@click.option(
    "-n",
    "--n",
    "count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of fires.",
)
@server_options(hidden=True)
def next_fires(expression: str, after: datetime | None, count: int, **given: str | None) -> None:
    """List the next fires of EXPRESSION in local time, in its time zone and in UTC."""
    asked = after or now()
    with steps(BATCH_STEPS):
        key, schedule = read(expression, asked, **given)
        fires = fires_of(key, schedule, asked, schedule.between(millis(asked), LAST_MS, count))
    _show(fires)


@cron.command
@expression_options
@click.option("--after", type=when, metavar="TIME", help="Start (UTC without an offset), or +10m.  [default: now]")
@click.option("--until", type=when, required=True, metavar="TIME", help="End, inclusive, or +1d.")
@click.option(
    "-n",
    "--n",
    "count",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Maximum fires.",
)
@server_options(hidden=True)
def between(expression: str, after: datetime | None, until: datetime, count: int, **given: str | None) -> None:
    """List and count the fires of EXPRESSION between two times."""
    asked = after or now()
    if until <= asked:
        raise click.BadParameter(f"{until.isoformat()} is not after {asked.isoformat()}", param_hint="--until")
    start_ms, end_ms = millis(asked), millis(until)
    with steps(BATCH_STEPS):
        key, schedule = read(expression, asked, **given)
        fires = schedule.between(start_ms, end_ms, count)
        found = fires_of(key, schedule, asked, fires)
        total = schedule.count_between(start_ms, end_ms) if len(fires) == count else len(fires)
    _show(found)
    print_message(
        f"{len(fires):,} of {total:,} fires" if total > len(fires) else f"{total:,} fire{'' if total == 1 else 's'}"
    )


def read(
    expression: str, asked: datetime, *, tz: str | None = None, dtstart: str | None = None, job: str | None = None
) -> tuple[str, Schedule]:
    """The schedule key and the schedule of an expression or a recurrence rule, as of a time."""
    is_rule = "FREQ=" in expression.upper()
    spec = ScheduleSpec(
        cron=None if is_rule else expression, rrule=expression if is_rule else None, timezone=tz, dtstart=dtstart
    )
    resolved = resolve(spec, now_ms=millis(asked), seed=None if job is None else job_seed(FIRST_TENANT, job))
    assert resolved.key is not None
    return resolved.key, compile_key(resolved.key)


def fires_of(key: str, schedule: Schedule, asked: datetime, fires: list[int]) -> wire.Fires:
    """Fires in the format of the API."""
    zone = msgspec.json.decode(key).get("tz", "UTC")
    found = [instant(fire) for fire in fires]
    return wire.Fires(description=schedule.describe(), timezone=zone, fires=found, notes=notes(key, millis(asked)))


def _show(fires: wire.Fires) -> None:
    out = Output(current().output)
    if out.is_text:
        _print(fires)
    else:
        out.value(fires)


def _print(fires: wire.Fires, indent: str = "") -> None:
    for line in aligned(both(fires.fires, ZoneInfo(fires.timezone)), indent):
        echo(line)
    for note in fires.notes:
        print_message(f"note: {note}")

"""`mainspring cron`: what an expression means, without a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Output, aligned, print_message
from mainspring.clock import instant, millis
from mainspring.display.times import both, now
from mainspring.domain.schedule.schedule import Schedule, ScheduleSpec, compile_key, job_seed, notes, resolve

F = TypeVar("F", bound=Callable[..., Any])

FIRST_TENANT = 1


@click.group
def cron() -> None:
    """Explain cron expressions and recurrence rules; needs no server.

    Five fields (minute, hour, day, month, weekday), six with seconds first, @daily and the like; or a rule of
    RFC 5545 such as 'FREQ=MONTHLY;BYDAY=1MO'. A zone by --tz, or in front of the fields as TZ=Europe/Berlin.
    """


def expression_options(function: F) -> F:
    """The expression, and what it may depend on."""
    for option in (
        click.option("--job", metavar="NAME", help="The job whose name H is derived from."),
        click.option("--dtstart", metavar="T", help="Where a recurrence rule starts, in the zone.  [now]"),
        click.option("--tz", metavar="ZONE", help="The time zone, such as Europe/Berlin.  [UTC]"),
        click.argument("expression"),
    ):
        function = option(function)
    return function


@cron.command
@expression_options
@server_options(hidden=True)
def explain(expression: str, **given: str | None) -> None:
    """Say in words when EXPRESSION fires, with the next three fires."""
    out, asked = Output(current().output), now()
    key, schedule = read(expression, asked, **given)
    fires = fires_of(key, schedule, asked, schedule.between(millis(asked), 1 << 62, 3))
    if not out.is_text:
        out.value(fires)
        return
    click.echo(fires.description)
    _print(fires, indent="  next  ")


@cron.command("next")
@expression_options
@click.option("--after", type=when, metavar="T", help="After this time (UTC without an offset), or +10m.  [now]")
@click.option("-n", "--n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many.")
@server_options(hidden=True)
def next_fires(expression: str, after: datetime | None, count: int, **given: str | None) -> None:
    """List the next fires of EXPRESSION in its zone and in UTC."""
    asked = after or now()
    key, schedule = read(expression, asked, **given)
    _show(fires_of(key, schedule, asked, schedule.between(millis(asked), 1 << 62, count)))


@cron.command
@expression_options
@click.option("--after", type=when, metavar="T", help="After this time (UTC without an offset), or +10m.  [now]")
@click.option("--until", type=when, required=True, metavar="T", help="Up to and including this time, or +1d.")
@click.option("-n", "--n", "count", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="At most.")
@server_options(hidden=True)
def between(expression: str, after: datetime | None, until: datetime, count: int, **given: str | None) -> None:
    """List the fires of EXPRESSION between two times, and say how many there are."""
    asked = after or now()
    if until <= asked:
        raise click.BadParameter(f"{until.isoformat()} is not after {asked.isoformat()}", param_hint="--until")
    key, schedule = read(expression, asked, **given)
    start_ms, end_ms = millis(asked), millis(until)
    fires = schedule.between(start_ms, end_ms, count)
    _show(fires_of(key, schedule, asked, fires))
    total = schedule.count_between(start_ms, end_ms) if len(fires) == count else len(fires)
    print_message(
        f"{len(fires):,} of {total:,} fires" if total > len(fires) else f"{total:,} fire{'' if total == 1 else 's'}"
    )


def read(
    expression: str, asked: datetime, *, tz: str | None = None, dtstart: str | None = None, job: str | None = None
) -> tuple[str, Schedule]:
    """The key and the schedule of a cron expression or a recurrence rule, as of an instant."""
    is_rule = "FREQ=" in expression.upper()
    spec = ScheduleSpec(
        cron=None if is_rule else expression, rrule=expression if is_rule else None, timezone=tz, dtstart=dtstart
    )
    resolved = resolve(spec, now_ms=millis(asked), seed=None if job is None else job_seed(FIRST_TENANT, job))
    assert resolved.key is not None
    return resolved.key, compile_key(resolved.key)


def fires_of(key: str, schedule: Schedule, asked: datetime, fires: list[int]) -> wire.Fires:
    """Fires as the server would answer."""
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
    # A schedule in UTC says nothing about where its reader is.
    zone = None if fires.timezone == "UTC" else ZoneInfo(fires.timezone)
    for line in aligned(both(fires.fires, zone), indent):
        click.echo(line)
    for note in fires.notes:
        print_message(f"note: {note}")

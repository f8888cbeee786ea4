"""`mainspring cron`: what an expression means, without a server."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import click
import msgspec

from mainspring import wire
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Output, aligned, remark
from mainspring.cli.times import both, now, when
from mainspring.clock import instant, millis
from mainspring.domain.schedule import ScheduleSpec, compile_key, notes, resolve


@click.group
def cron() -> None:
    """Explain cron expressions; needs no server.

    Five fields (minute, hour, day, month, weekday) or @daily and the like; a zone by --tz, or in front of
    them as TZ=Europe/Berlin.
    """


@cron.command
@click.argument("expression")
@click.option("--tz", metavar="ZONE", help="The time zone, such as Europe/Berlin.  [UTC]")
@server_options(hidden=True)
def explain(expression: str, tz: str | None) -> None:
    """Say in words when EXPRESSION fires, with the next three fires."""
    out, fires = Output(current().output), fires_of(expression, tz, now(), 3)
    if not out.for_people:
        out.value(fires)
        return
    click.echo(fires.description)
    _print(fires, indent="  next  ")


@cron.command("next")
@click.argument("expression")
@click.option("--tz", metavar="ZONE", help="The time zone, such as Europe/Berlin.  [UTC]")
@click.option("--after", type=when, metavar="T", help="After this time (UTC without an offset), or +10m.  [now]")
@click.option("-n", "--n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many.")
@server_options(hidden=True)
def next_fires(expression: str, tz: str | None, after: datetime | None, count: int) -> None:
    """List the next fires of EXPRESSION in its zone and in UTC."""
    out, fires = Output(current().output), fires_of(expression, tz, after or now(), count)
    if out.for_people:
        _print(fires)
    else:
        out.value(fires)


def fires_of(expression: str, tz: str | None, after: datetime, count: int) -> wire.Fires:
    """The first `count` fires after an instant, as the server would answer."""
    after_ms = millis(after)
    resolved = resolve(ScheduleSpec(cron=expression, timezone=tz), now_ms=after_ms)
    assert resolved.key is not None
    schedule = compile_key(resolved.key)
    found: list[datetime] = []
    fire = schedule.next_after(after_ms)
    while fire is not None and len(found) < count:
        found.append(instant(fire))
        fire = schedule.next_after(fire)
    zone = msgspec.json.decode(resolved.key).get("tz", "UTC")
    said = notes(resolved.key, after_ms)
    return wire.Fires(description=schedule.describe(), timezone=zone, fires=found, notes=said)


def _print(fires: wire.Fires, indent: str = "") -> None:
    # A schedule in UTC says nothing about where its reader is.
    zone = None if fires.timezone == "UTC" else ZoneInfo(fires.timezone)
    for line in aligned(both(fires.fires, zone), indent):
        click.echo(line)
    for note in fires.notes:
        remark(f"note: {note}")

"""`mainspring calendars`: open and closed days that schedules follow."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected, gather
from mainspring.cli.output import Column, Output, TableLayout, aligned, print_message
from mainspring.codec import decode
from mainspring.display.times import both, local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

CALENDARS: TableLayout[wire.Calendar] = TableLayout(
    name=lambda calendar: calendar.name,
    columns=[
        Column("NAME", lambda calendar: calendar.name),
        Column("DAYS", lambda calendar: days_text(calendar.days), wraps=True),
        Column("JOBS", lambda calendar: str(calendar.jobs)),
        Column("VERSION", lambda calendar: str(calendar.version)),
        Column("CHANGED", lambda calendar: local(calendar.created_at), wide=True),
        Column("BY", lambda calendar: calendar.created_by, wide=True),
    ],
    empty="no calendars yet; make one with: mainspring calendars set holidays --date 2026-12-25 --rule '* * SAT,SUN'",
)
VERSIONS: TableLayout[wire.CalendarVersion] = TableLayout(
    name=lambda version: str(version.version),
    columns=[
        Column("VERSION", lambda version: str(version.version)),
        Column("CREATED", lambda version: local(version.created_at)),
        Column("BY", lambda version: version.created_by),
        Column("DAYS", lambda version: days_text(version.days), wraps=True),
    ],
    empty="no versions",
)


@click.group
def calendars() -> None:
    """Open and closed days that schedules follow by name: `mainspring add ... --calendar NAME`."""


@calendars.command("list")
@connected
async def list_calendars(client: AsyncClient, out: Output) -> None:
    """List calendars by name."""
    out.page(await gather(lambda count, cursor: client.calendars(limit=count, cursor=cursor), 10_000), CALENDARS)


@calendars.command
@click.argument("name")
@connected
async def get(client: AsyncClient, out: Output, name: str) -> None:
    """Show one calendar."""
    out.one(await client.calendar(name), CALENDARS, _details)


@calendars.command("set")
@click.argument("name")
@click.option("--date", "dates", multiple=True, metavar="DAY", help="A day, such as 2026-12-25; repeatable.")
@click.option("--rule", "rules", multiple=True, metavar="RULE", help="Day of month, month, weekday: '* * SAT,SUN'.")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A day or a rule on each line, or JSON as the API takes it.",
)
@click.option("--include", is_flag=True, help="Fire on these days only, instead of on all others.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@connected
async def put(
    client: AsyncClient,
    out: Output,
    name: str,
    dates: tuple[str, ...],
    rules: tuple[str, ...],
    path: Path | None,
    include: bool,
    dry_run: bool,
) -> None:
    """Make a calendar, or give it other days; all jobs that follow it do so from now on."""
    days = _read(dates, rules, path, include)
    change = await client.try_calendar(name, days)
    if dry_run and not out.is_text:
        out.value(change)
        return
    found = None if dry_run else await client.put_calendar(name, days)
    if found is not None:
        out.one(found, CALENDARS, lambda found: f"{found.name}, version {found.version}: {days_text(found.days)}")
    if out.is_text:
        print_message("\n".join(_change_lines(change, done=not dry_run)))


@calendars.command
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
async def delete(client: AsyncClient, out: Output, name: str, yes: bool) -> None:
    """Delete a calendar that no job follows."""
    found = await client.calendar(name)
    print_message(f"delete the calendar {name} ({days_text(found.days)}); its versions stay readable")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nothing was deleted: without a terminal to ask on, this needs --yes")
    if not yes and not click.confirm("Go on?", err=True):
        raise click.exceptions.Exit(1)
    await client.delete_calendar(name)
    click.echo(name if out.format == "name" else f"{name} deleted", err=out.format in ("json", "jsonl"))


@calendars.command
@click.argument("name")
@click.option("-n", "--count", type=click.IntRange(1, 400), default=90, show_default=True, help="How many days ahead.")
@connected
async def days(client: AsyncClient, out: Output, name: str, count: int) -> None:
    """Show the closed days ahead."""
    found = await client.closed_days(name, count=count)
    if not out.is_text:
        out.value(found)
        return
    for day in found.closed:
        click.echo(f"{day.isoformat()}  {day:%A}")
    print_message(f"{len(found.closed)} of {count} days are closed")


@calendars.command
@click.argument("name")
@connected
async def versions(client: AsyncClient, out: Output, name: str) -> None:
    """List the versions of a calendar, newest first."""
    fetch = gather(lambda count, cursor: client.calendar_versions(name, limit=count, cursor=cursor), 1000)
    out.page(await fetch, VERSIONS)


def days_text(days: wire.CalendarDays) -> str:
    """In words: "closed on 2 dates and * * SAT,SUN"."""
    dates = f"{len(days.dates)} date{'' if len(days.dates) == 1 else 's'}" if days.dates else ""
    listed = " and ".join(filter(None, [dates, ", ".join(days.rules)]))
    return f"{'closed' if days.mode == 'exclude' else 'open only'} on {listed or 'no day'}"


def _read(dates: Iterable[str], rules: Iterable[str], path: Path | None, include: bool) -> wire.CalendarDays:
    found, wanted = [_date(text) for text in dates], list(rules)
    mode = "include" if include else "exclude"
    if path is not None:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            read = decode(text.encode(), wire.CalendarDays)
            found, wanted, mode = [*read.dates, *found], [*read.rules, *wanted], "include" if include else read.mode
        else:
            lines = [line.partition("#")[0].strip() for line in text.splitlines()]
            wanted = [*(line for line in lines if " " in line), *wanted]
            found = [*(_date(line) for line in lines if line and " " not in line), *found]
    elif not found and not wanted:
        raise click.UsageError("say which days: --date 2026-12-25, --rule '* * SAT,SUN' or --file FILE")
    return wire.CalendarDays(dates=sorted(set(found)), rules=wanted, mode=mode)  # type: ignore[arg-type]


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a day such as 2026-12-25") from None


def _details(calendar: wire.Calendar) -> str:
    rows = [
        ["name", calendar.name],
        ["days", days_text(calendar.days)],
        *[["", day.isoformat()] for day in calendar.days.dates],
        ["jobs", str(calendar.jobs)],
        ["version", f"{calendar.version}, of {local(calendar.created_at)} by {calendar.created_by}"],
    ]
    return "\n".join(aligned(rows))


def _change_lines(change: wire.CalendarChange, *, done: bool) -> list[str]:
    if not change.jobs:
        return ["no job fires otherwise than before" if done else "no job would fire otherwise than now"]
    lines = [f"{change.jobs:,} job{'' if change.jobs == 1 else 's'} {'fire' if done else 'would fire'} otherwise"]
    for job in change.changed:
        lines.append(f"  {job.job}")
        for word, fires in (("before", job.fires_before), ("after", job.fires_after)):
            lines += aligned([[word, *row] for row in both(fires)], indent="    ") or [f"    {word}  no more fires"]
    return lines

"""`mainspring calendars`: open and closed days of schedules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.command_options import count_option, yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, aligned, echo, print_message
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
    empty="no calendars; create one with: mainspring calendars set holidays --date 2026-12-25 --rule '* * SAT,SUN'",
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


@click.group(cls=Group)
def calendars() -> None:
    """Manage calendars of open and closed days, for: mainspring add --calendar NAME"""


@calendars.command("list")
@connected
async def list_calendars(client: AsyncClient, out: Output) -> None:
    """List calendars."""
    out.page(await gather(lambda count, cursor: client.calendars(limit=count, cursor=cursor), 10_000), CALENDARS)


@calendars.command
@click.argument("name")
@connected
async def get(client: AsyncClient, out: Output, name: str) -> None:
    """Show a calendar."""
    out.one(await client.calendar(name), CALENDARS, _details)


@calendars.command("set")
@click.argument("name")
@click.option("--date", "dates", multiple=True, metavar="DATE", help="Date, such as 2026-12-25. Repeatable.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Rule of day of month, month and weekday, such as '* * SAT,SUN'. Repeatable.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with a date or a rule on each line, or with the JSON of the API.",
)
@click.option("--include", is_flag=True, help="Open on these days only, instead of closed on them.")
@click.option("--dry-run", is_flag=True, help="Show the effect without changing anything.")
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
    """Create a calendar, or replace its days for all jobs that use it."""
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
@yes_option
@connected
async def delete(client: AsyncClient, out: Output, name: str, yes: bool) -> None:
    """Delete a calendar that no job uses. Its versions stay readable."""
    found = await client.calendar(name)
    confirm(f"delete the calendar {name}: {days_text(found.days)}", yes=yes)
    await client.delete_calendar(name)
    out.deleted(name)


@calendars.command
@click.argument("name")
@count_option(90, 400, "Number of days ahead.")
@connected
async def days(client: AsyncClient, out: Output, name: str, count: int) -> None:
    """List the next closed days."""
    found = await client.closed_days(name, count=count)
    if not out.is_text:
        out.value(found)
        return
    for day in found.closed:
        echo(f"{day.isoformat()}  {day:%A}")
    print_message(f"{len(found.closed)} of {count} days are closed")


@calendars.command
@click.argument("name")
@connected
async def versions(client: AsyncClient, out: Output, name: str) -> None:
    """List the versions of a calendar, newest first."""
    fetch = gather(lambda count, cursor: client.calendar_versions(name, limit=count, cursor=cursor), 1000)
    out.page(await fetch, VERSIONS)


def days_text(days: wire.CalendarDays) -> str:
    """A description: "closed on 2 dates and * * SAT,SUN"."""
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
        raise click.UsageError("Missing days: use --date 2026-12-25, --rule '* * SAT,SUN' or --file FILE.")
    return wire.CalendarDays(dates=sorted(set(found)), rules=wanted, mode=mode)  # type: ignore[arg-type]


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a date such as 2026-12-25.") from None


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
        return ["no fires changed" if done else "no fires would change"]
    lines = [f"fires of {change.jobs:,} job{'' if change.jobs == 1 else 's'} {'changed' if done else 'would change'}"]
    for job in change.changed:
        lines.append(f"  {job.job}")
        for word, fires in (("before", job.fires_before), ("after", job.fires_after)):
            lines += aligned([[word, *row] for row in both(fires)], indent="    ") or [f"    {word}  no more fires"]
    return lines

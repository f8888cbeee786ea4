"""`mainspring blackouts`: windows in which nothing starts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.command_options import reason_option
from mainspring.cli.connect import connected
from mainspring.cli.feed import SHORT_ID
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout
from mainspring.display.times import distance, now
from mainspring.domain.errors import NotFound
from mainspring.domain.schedule.schedule import ScheduleSpec

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

BLACKOUTS: TableLayout[wire.Blackout] = TableLayout(
    name=lambda blackout: str(blackout.blackout_id),
    columns=[
        Column("ID", lambda blackout: str(blackout.blackout_id)[:SHORT_ID]),
        Column("WINDOW", lambda blackout: blackout.description, wraps=True),
        Column("SCOPE", lambda blackout: scope_text(blackout)),
        Column("STATE", lambda blackout: state_text(blackout)),
        Column("REASON", lambda blackout: blackout.reason, wraps=True),
        Column("BY", lambda blackout: blackout.created_by, wide=True),
        Column("FULL ID", lambda blackout: str(blackout.blackout_id), wide=True),
    ],
    empty="no blackouts",
)


@click.group(cls=Group)
def blackouts() -> None:
    """Manage windows in which nothing starts: for all jobs, a queue or a job."""


@blackouts.command("list")
@connected
async def list_blackouts(client: AsyncClient, out: Output) -> None:
    """List blackouts, newest first."""
    out.page(await client.blackouts(), BLACKOUTS)


@blackouts.command
@click.option(
    "--from", "start_at", type=when, metavar="TIME", help="Start (UTC without an offset), or +10m.  [default: now]"
)
@click.option("--until", "end_at", type=when, metavar="TIME", help="End, or +2h.")
@click.option("--cron", metavar="EXPR", help="Cron expression for the start of recurring windows.")
@click.option("--every", metavar="DURATION", help="Interval of recurring windows.")
@click.option("--rrule", metavar="RULE", help="Recurrence rule for the start of recurring windows.")
@click.option("--tz", metavar="ZONE", help="Time zone of the schedule.  [default: UTC]")
@click.option("--for", "lasts", metavar="DURATION", help="Length of each recurring window, such as 2h.")
@click.option("--queue", metavar="NAME", help="Queue to restrict it to.")
@click.option("--job", metavar="JOB", help="Job to restrict it to.")
@reason_option
@connected
async def add(
    client: AsyncClient,
    out: Output,
    start_at: datetime | None,
    end_at: datetime | None,
    cron: str | None,
    every: str | None,
    rrule: str | None,
    tz: str | None,
    lasts: str | None,
    queue: str | None,
    job: str | None,
    reason: str,
) -> None:
    """Add a blackout.

    \b
    Examples:
      mainspring blackouts add --until +2h --reason 'database upgrade'
      mainspring blackouts add --cron '0 2 * * SUN' --for 3h --queue long
    """
    recurring = cron is not None or every is not None or rrule is not None
    schedule = ScheduleSpec(cron=cron, every=every, rrule=rrule, timezone=tz) if recurring else None
    if not recurring and end_at is not None:
        start_at = start_at or now()
    new = wire.NewBlackout(
        start_at=start_at, end_at=end_at, schedule=schedule, lasts=lasts, queue=queue, job=job, reason=reason
    )
    out.one(await client.add_blackout(new), BLACKOUTS, _added)


@blackouts.command
@click.argument("blackout")
@connected
async def delete(client: AsyncClient, out: Output, blackout: str) -> None:
    """Delete a blackout. BLACKOUT is an id or a unique prefix. Executions that it held start."""
    found = [b for b in (await client.blackouts()).items if str(b.blackout_id).startswith(blackout.lower())]
    if not blackout or len(found) != 1:
        raise NotFound(f"{'several blackouts begin' if found else 'no blackout begins'} with {blackout!r}")
    await client.delete_blackout(found[0].blackout_id)
    out.deleted(str(found[0].blackout_id), found[0].description)


def scope_text(blackout: wire.Blackout) -> str:
    if blackout.job is not None:
        return f"job {blackout.job}"
    return f"queue {blackout.queue}" if blackout.queue is not None else "all jobs"


def state_text(blackout: wire.Blackout) -> str:
    if blackout.holds_until is not None:
        return f"active, ends {distance(blackout.holds_until, now())}"
    return f"starts {distance(blackout.next_at, now())}" if blackout.next_at is not None else "over"


def _added(blackout: wire.Blackout) -> str:
    return f"{str(blackout.blackout_id)[:SHORT_ID]} added: {blackout.description}, for {scope_text(blackout)}"

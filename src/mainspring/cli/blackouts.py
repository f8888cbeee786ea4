"""`mainspring blackouts`: maintenance windows in which nothing starts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.connect import connected
from mainspring.cli.feed import SHORT_ID
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
        Column("FOR", lambda blackout: scope_text(blackout)),
        Column("STATE", lambda blackout: state_text(blackout)),
        Column("REASON", lambda blackout: blackout.reason, wraps=True),
        Column("BY", lambda blackout: blackout.created_by, wide=True),
        Column("FULL ID", lambda blackout: str(blackout.blackout_id), wide=True),
    ],
    empty="no blackouts",
)


@click.group
def blackouts() -> None:
    """Maintenance windows in which no fire starts: for everything, a queue or a job."""


@blackouts.command("list")
@connected
async def list_blackouts(client: AsyncClient, out: Output) -> None:
    """List blackouts, the newest first."""
    out.page(await client.blackouts(), BLACKOUTS)


@blackouts.command
@click.option("--from", "start_at", type=when, metavar="T", help="The beginning (UTC without an offset), or +10m.")
@click.option("--until", "end_at", type=when, metavar="T", help="The end, or +2h.")
@click.option("--cron", metavar="EXPR", help="Again and again, from each fire of this expression on.")
@click.option("--every", metavar="D", help="Again and again, at this interval.")
@click.option("--rrule", metavar="RULE", help="Again and again, by this recurrence rule.")
@click.option("--tz", metavar="ZONE", help="The time zone of the schedule.  [UTC]")
@click.option("--for", "lasts", metavar="D", help="How long each one lasts, such as 2h.")
@click.option("--queue", help="Only for this queue.")
@click.option("--job", help="Only for this job.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
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
    mainspring blackouts add --until +2h --reason 'database upgrade'
    mainspring blackouts add --cron '0 2 * * SUN' --tz Europe/Berlin --for 3h --queue long
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
    """End a blackout, by its id or the beginning of it. What waits for its end starts."""
    found = [b for b in (await client.blackouts()).items if str(b.blackout_id).startswith(blackout.lower())]
    if not blackout or len(found) != 1:
        raise NotFound(f"{'several blackouts begin' if found else 'no blackout begins'} with {blackout!r}")
    await client.delete_blackout(found[0].blackout_id)
    text = str(found[0].blackout_id) if out.format == "name" else f"{found[0].description}: deleted"
    click.echo(text, err=out.format in ("json", "jsonl"))


def scope_text(blackout: wire.Blackout) -> str:
    if blackout.job is not None:
        return f"job {blackout.job}"
    return f"queue {blackout.queue}" if blackout.queue is not None else "everything"


def state_text(blackout: wire.Blackout) -> str:
    if blackout.holds_until is not None:
        return f"holds, over {distance(blackout.holds_until, now())}"
    return f"begins {distance(blackout.next_at, now())}" if blackout.next_at is not None else "over"


def _added(blackout: wire.Blackout) -> str:
    return f"{str(blackout.blackout_id)[:SHORT_ID]} added: {blackout.description}, for {scope_text(blackout)}"

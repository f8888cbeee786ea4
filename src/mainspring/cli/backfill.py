"""`mainspring backfill` and `mainspring backfills`: past instants of a job, executed on purpose."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.connect import connected, gather
from mainspring.cli.jobs import limit_option
from mainspring.cli.output import Output, print_message
from mainspring.cli.run import params_option
from mainspring.cli.tables.backfills import BACKFILLS, backfill_details, backfill_progress
from mainspring.cli.tables.jobs import fire_lines
from mainspring.display.times import local
from mainspring.domain.schedule.backfill import Order, Reprocess

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

POLL_S = 1.0
SHOWN = 10
FAILED, CANCELLED = 10, 11


@click.command
@click.argument("job")
@click.option(
    "--from", "start", type=when, required=True, metavar="T", help="The first instant (UTC without an offset)."
)
@click.option("--to", type=when, metavar="T", help="Up to this, not included.  [now]")
@click.option(
    "--reprocess",
    type=click.Choice(get_args(Reprocess)),
    default="none",
    show_default=True,
    help="none: what has no execution or a skipped one; failed: also what did not succeed; all: every instant.",
)
@click.option("--order", type=click.Choice(get_args(Order)), default="oldest", show_default=True, help="Which first.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many at a time.")
@click.option("--priority", type=click.IntRange(0, 10), default=2, show_default=True, help="0 to 10, higher first.")
@params_option
@click.option("--dry-run", is_flag=True, help="Only show which instants it would execute.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit code 10 if an execution did not succeed.")
@connected
async def backfill(
    client: AsyncClient,
    out: Output,
    job: str,
    start: datetime,
    to: datetime | None,
    reprocess: Reprocess,
    order: Order,
    concurrency: int,
    priority: int,
    params: dict[str, Any] | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
) -> None:
    """Execute the instants of JOB's schedule from one time up to another. Its cadence goes on as before.

    Works also while the job is paused. To look after it: mainspring backfills
    """
    request = wire.BackfillRequest(
        from_=start, to=to, reprocess=reprocess, order=order, concurrency=concurrency, priority=priority, params=params
    )
    plan = await client.plan_backfill(job, request)
    if dry_run:
        print_plan(out, job, plan)
        return
    print_message(plan_text(job, plan))
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nothing was started: without a terminal to ask on, this needs --yes")
    if not yes and not click.confirm("Go on?", err=True):
        raise click.exceptions.Exit(1)
    found = await client.start_backfill(job, request)
    if wait:
        found = await _wait(client, found)
    out.one(found, BACKFILLS, lambda found: f"{found.backfill_id}  {found.job}  {backfill_progress(found)}")
    if wait:
        raise click.exceptions.Exit(exit_code(found))


async def _wait(client: AsyncClient, backfill: wire.Backfill) -> wire.Backfill:
    """Shows how far it is whenever that changes, until it has ended."""
    shown = ""
    while True:
        backfill = await client.backfill(backfill.backfill_id)
        if backfill.ended_at is not None:
            return backfill
        if (line := backfill_progress(backfill)) != shown:
            print_message(shown := line)
        await asyncio.sleep(POLL_S)


def exit_code(backfill: wire.Backfill) -> int:
    if backfill.state == "cancelled":
        return CANCELLED
    return 0 if set(backfill.executions) <= {"succeeded"} else FAILED


def plan_text(job: str, plan: wire.BackfillPlan) -> str:
    out = f"; {plan.left_out:,} left out, they have an outcome" if plan.left_out else ""
    if not plan.instants:
        return f"{job}: nothing to execute{out}"
    return f"{job}: {plan.instants:,} instants from {local(plan.first)} to {local(plan.last)}{out}"


def print_plan(out: Output, job: str, plan: wire.BackfillPlan) -> None:
    if not out.is_text:
        out.value(plan)
        return
    click.echo(plan_text(job, plan))
    for line in fire_lines(plan.page[:SHOWN], indent="  "):
        click.echo(line)
    if plan.instants > SHOWN:
        click.echo(f"  and {plan.instants - SHOWN:,} more")


@click.group
def backfills() -> None:
    """List, look at, pause, resume and cancel backfills."""


@backfills.command("list")
@click.option("--job", metavar="JOB", help="Only those of one job.")
@limit_option(20)
@connected
async def list_backfills(client: AsyncClient, out: Output, job: str | None, limit: int) -> None:
    """List backfills, newest first."""
    out.page(
        await gather(lambda count, cursor: client.backfills(job=job, limit=count, cursor=cursor), limit), BACKFILLS
    )


@backfills.command
@click.argument("backfill")
@connected
async def get(client: AsyncClient, out: Output, backfill: str) -> None:
    """Show one backfill and how far it has got."""
    out.one(await client.backfill(backfill), BACKFILLS, backfill_details)


@backfills.command
@click.argument("backfill")
@connected
async def pause(client: AsyncClient, out: Output, backfill: str) -> None:
    """Make no more executions of a backfill for now; those that live go on."""
    out.one(await client.pause_backfill(backfill), BACKFILLS, _line)


@backfills.command
@click.argument("backfill")
@connected
async def resume(client: AsyncClient, out: Output, backfill: str) -> None:
    """Go on with a paused backfill."""
    out.one(await client.resume_backfill(backfill), BACKFILLS, _line)


@backfills.command
@click.argument("backfill")
@connected
async def cancel(client: AsyncClient, out: Output, backfill: str) -> None:
    """End a backfill and cancel what lives of it."""
    out.one(await client.cancel_backfill(backfill), BACKFILLS, _line)


def _line(backfill: wire.Backfill) -> str:
    return f"{backfill.job}: {backfill_progress(backfill)}"

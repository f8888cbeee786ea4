"""`mainspring backfill` and `mainspring backfills`: execute past fires of a job."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.command_options import limit_option, yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Output, echo, print_message
from mainspring.cli.run import params_option
from mainspring.cli.tables.backfills import BACKFILLS, backfill_details, backfill_progress
from mainspring.cli.tables.jobs import fire_lines
from mainspring.display.times import local
from mainspring.domain.schedule.backfill import Order, Reprocess

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

POLL_S = 1.0
SHOWN_FIRES = 10
FAILED, CANCELLED = 10, 11


@click.command
@click.argument("job")
@click.option(
    "--from", "start", type=when, required=True, metavar="TIME", help="Start of the range (UTC without an offset)."
)
@click.option("--to", type=when, metavar="TIME", help="End of the range, exclusive.  [default: now]")
@click.option(
    "--reprocess",
    type=click.Choice(get_args(Reprocess)),
    default="none",
    show_default=True,
    help="Fires to execute. none: those without an execution or skipped; failed: also those that did not succeed;"
    " all: every fire.",
)
@click.option(
    "--order", type=click.Choice(get_args(Order)), default="oldest", show_default=True, help="Fires to start with."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Maximum concurrent executions.",
)
@click.option(
    "--priority", type=click.IntRange(0, 10), default=2, show_default=True, metavar="N", help="Priority, higher first."
)
@params_option
@click.option("--dry-run", is_flag=True, help="Show the fires without executing them.")
@yes_option
@click.option("--wait", is_flag=True, help="Wait until it ends; exit code 10 if an execution did not succeed.")
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
    """Execute a job for a range of past fires, even if it is paused. Its schedule is not affected.

    Manage running backfills with: mainspring backfills
    """
    request = wire.BackfillRequest(
        from_=start, to=to, reprocess=reprocess, order=order, concurrency=concurrency, priority=priority, params=params
    )
    plan = await client.plan_backfill(job, request)
    if dry_run:
        print_plan(out, job, plan)
        return
    confirm(plan_text(job, plan), yes=yes)
    found = await client.start_backfill(job, request)
    if wait:
        found = await _wait(client, found)
    out.one(found, BACKFILLS, lambda found: f"{found.backfill_id}  {found.job}  {backfill_progress(found)}")
    if wait:
        raise click.exceptions.Exit(exit_code(found))


async def _wait(client: AsyncClient, backfill: wire.Backfill) -> wire.Backfill:
    """Print the progress when it changes, until the backfill ends."""
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
    out = f"; {plan.left_out:,} excluded, they have an outcome" if plan.left_out else ""
    if not plan.instants:
        return f"{job}: nothing to execute{out}"
    return f"{job}: {plan.instants:,} fires from {local(plan.first)} to {local(plan.last)}{out}"


def print_plan(out: Output, job: str, plan: wire.BackfillPlan) -> None:
    if not out.is_text:
        out.value(plan)
        return
    echo(plan_text(job, plan))
    for line in fire_lines(plan.page[:SHOWN_FIRES], indent="  "):
        echo(line)
    if plan.instants > SHOWN_FIRES:
        echo(f"  and {plan.instants - SHOWN_FIRES:,} more")


@click.group(cls=Group)
def backfills() -> None:
    """List, pause, resume and cancel backfills."""


@backfills.command("list")
@click.option("--job", metavar="JOB", help="Job name or id.")
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
    """Show a backfill and its progress."""
    out.one(await client.backfill(backfill), BACKFILLS, backfill_details)


@backfills.command
@click.argument("backfill")
@connected
async def pause(client: AsyncClient, out: Output, backfill: str) -> None:
    """Pause a backfill. Its active executions continue."""
    out.one(await client.pause_backfill(backfill), BACKFILLS, _line)


@backfills.command
@click.argument("backfill")
@connected
async def resume(client: AsyncClient, out: Output, backfill: str) -> None:
    """Resume a paused backfill."""
    out.one(await client.resume_backfill(backfill), BACKFILLS, _line)


@backfills.command
@click.argument("backfill")
@connected
async def cancel(client: AsyncClient, out: Output, backfill: str) -> None:
    """Cancel a backfill and its active executions."""
    out.one(await client.cancel_backfill(backfill), BACKFILLS, _line)


def _line(backfill: wire.Backfill) -> str:
    return f"{backfill.job}: {backfill_progress(backfill)}"

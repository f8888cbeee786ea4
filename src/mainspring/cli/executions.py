"""`mainspring executions`: what happened, what happens, and its output."""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected, gather
from mainspring.cli.failure import state_code
from mainspring.cli.feed import feed_line
from mainspring.cli.jobs import limit_option
from mainspring.cli.output import Output, has_color, print_message
from mainspring.cli.run import LogPrinter, print_output
from mainspring.cli.tables.executions import ARTIFACTS, EXECUTIONS, LIFECYCLE, execution_details, state_text
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.domain.execution import STATES, State
from mainspring.domain.filter import spell

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group
def executions() -> None:
    """List, look at, wait for and cancel executions; read their output.

    EXECUTION is an id, the unique beginning of one, or @last for the newest.
    """


@executions.command("list")
@click.argument("filter_", nargs=-1, metavar="[FILTER]...")
@click.option("--job", metavar="JOB", help="Only of this job.")
@click.option("--state", multiple=True, type=click.Choice(STATES), help="Only in this state; repeatable.")
@limit_option(20)
@connected
async def list_executions(
    client: AsyncClient, out: Output, filter_: tuple[str, ...], job: str | None, state: tuple[State, ...], limit: int
) -> None:
    """List executions, newest first.

    FILTER is words of the job's name, or fields: state:failed,lost job:report queue:long since:24h until:1h
    trigger:manual label:team=finance.
    """
    said = " ".join((*filter_, spell(job=job or "", state=state))).strip() if filter_ else None
    page = await gather(
        lambda count, cursor: client.executions(
            job=None if said else job, state=() if said else state, limit=count, cursor=cursor, filter=said
        ),
        limit,
    )
    out.page(page, EXECUTIONS)


@executions.command
@click.argument("execution")
@connected
async def get(client: AsyncClient, out: Output, execution: str) -> None:
    """Show one execution with its attempts."""
    out.one(await client.execution(execution), EXECUTIONS, execution_details)


@executions.command
@click.argument("execution")
@connected
async def timeline(client: AsyncClient, out: Output, execution: str) -> None:
    """Show what happened to an execution, in order."""
    out.page(await client.events(execution), LIFECYCLE)


@executions.command
@click.argument("execution")
@click.option("--follow", "-f", is_flag=True, help="Go on until the execution ends.")
@connected
async def logs(client: AsyncClient, out: Output, execution: str, follow: bool) -> None:
    """Print the output: what went to stdout on stdout, all else on stderr."""
    if follow and out.is_text:
        await print_output(client, execution)
        return
    if follow:
        async for chunk in client.follow_logs(execution):
            out.value(chunk)
        return
    # "@last" must not become another execution between two pages.
    ref = (await client.execution(execution)).execution_id
    printer, place = LogPrinter(), ""
    while True:
        piece = await client.logs(ref, place=place)
        for chunk in piece.chunks:
            if out.is_text:
                printer.write(chunk)
            else:
                out.value(chunk)
        if not piece.chunks or piece.place == place:
            return
        place = piece.place


@executions.command
@click.argument("execution")
@click.option("--get", "name", metavar="NAME", help="Fetch this one instead of listing them.")
@click.option("--to", "target", metavar="FILE", help="Where to; its own name here, if left out. - is stdout.")
@connected
async def artifacts(client: AsyncClient, out: Output, execution: str, name: str | None, target: str | None) -> None:
    """List the files an execution has left, or fetch one."""
    if name is None:
        out.page(await client.artifacts(execution), ARTIFACTS)
        return
    if target == "-":
        await fetch(client, execution, name, sys.stdout.buffer)
        return
    path = Path(target or name.rpartition("/")[2])
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            await fetch(client, execution, name, file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print_message(f"{name} is in {path}")


async def fetch(client: AsyncClient, execution: str, name: str, file: BinaryIO) -> None:
    """All of it, and what was sent, or an error."""
    ref = (await client.execution(execution)).execution_id
    found = next((a for a in (await client.artifacts(ref)).items if a.name == name), None)
    if found is None:
        raise NotFound(f"the execution has no artifact {name!r}")
    digest = hashlib.sha256()
    async for piece in client.artifact(ref, name):
        digest.update(piece)
        file.write(piece)
    if digest.hexdigest() != found.sha256:
        raise Unavailable(f"{name!r} did not arrive as it was sent; try again")


@executions.command
@click.argument("execution")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
@connected
async def cancel(client: AsyncClient, out: Output, execution: str, reason: str) -> None:
    """Cancel an execution that has not ended."""
    found = await client.cancel(execution, reason)
    going = ", being cancelled" if found.cancelling and found.finished_at is None else ""
    out.one(found, EXECUTIONS, lambda e: f"{e.execution_id}  {e.title}  {state_text(e.state)}{going}")


@executions.command
@click.argument("execution")
@click.option("--timeout", type=seconds, default=math.inf, metavar="D", help="No longer than this (exit code 8).")
@connected
async def wait(client: AsyncClient, out: Output, execution: str, timeout: float) -> None:
    """Wait for the end of an execution.

    The exit code is 0 if it succeeded, 10 if it failed, 11 if it was cancelled, 12 if it timed out.
    """
    final = await client.wait(execution, timeout_s=timeout)
    out.one(final, EXECUTIONS, lambda e: feed_line(e, color=has_color(sys.stdout)))
    raise click.exceptions.Exit(state_code(final.state))

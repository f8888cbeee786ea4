"""`mainspring executions`: inspect and cancel executions, print their logs."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from mainspring.cli.command_options import limit_option, reason_option, timeout_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.export import export
from mainspring.cli.failure import state_code
from mainspring.cli.feed import feed_line
from mainspring.cli.group import Group
from mainspring.cli.output import Output, has_color, print_message
from mainspring.cli.run import LogPrinter, params_option, print_output
from mainspring.cli.tables.executions import ARTIFACTS, EXECUTIONS, LIFECYCLE, execution_details, state_text
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.domain.execution import STATES, State
from mainspring.domain.filter import spell

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group(cls=Group)
def executions() -> None:
    """List, inspect, wait for and cancel executions; print logs.

    EXECUTION is an id, a unique prefix of one, or @last for the one that you started last.
    """


executions.add_command(export)


@executions.command("list")
@click.argument("filter_", nargs=-1, metavar="[FILTER]...")
@click.option("--job", metavar="JOB", help="Job name or id.")
@click.option(
    "--state", multiple=True, type=click.Choice(STATES), metavar="STATE", help="State, such as failed. Repeatable."
)
@limit_option(20)
@connected
async def list_executions(
    client: AsyncClient, out: Output, filter_: tuple[str, ...], job: str | None, state: tuple[State, ...], limit: int
) -> None:
    """List executions, newest first.

    FILTER is words of the job name, or fields: state:failed,lost job:report queue:long since:24h until:1h
    trigger:manual label:team=finance
    """
    query = " ".join((*filter_, spell(job=job or "", state=state))).strip() if filter_ else None
    page = await gather(
        lambda count, cursor: client.executions(
            job=None if query else job, state=() if query else state, limit=count, cursor=cursor, filter=query
        ),
        limit,
    )
    out.page(page, EXECUTIONS)


@executions.command
@click.argument("execution")
@connected
async def get(client: AsyncClient, out: Output, execution: str) -> None:
    """Show an execution and its attempts."""
    out.one(await client.execution(execution), EXECUTIONS, execution_details)


@executions.command
@click.argument("execution")
@connected
async def timeline(client: AsyncClient, out: Output, execution: str) -> None:
    """List the events of an execution in order."""
    out.page(await client.events(execution), LIFECYCLE)


@executions.command("logs")
@click.argument("execution")
@click.option("--follow", "-f", is_flag=True, help="Stream the log until the execution ends.")
@click.option("--raw", is_flag=True, help="Print it as it is, with everything that controls a terminal.")
@click.option("--timestamps", "-t", is_flag=True, help="Start each line with the time when the server received it.")
@connected
async def execution_logs(
    client: AsyncClient, out: Output, execution: str, follow: bool, raw: bool, timestamps: bool
) -> None:
    """Print the log: its stdout on stdout, its stderr on stderr.

    Colours are kept on a terminal. Other control characters are shown as escapes, unless --raw.
    """
    if raw and not out.is_text:
        raise click.UsageError("--raw prints the log itself, so it has no format.")
    if raw and timestamps:
        raise click.UsageError("--raw prints the log itself, so it has no --timestamps.")
    if follow and out.is_text:
        await print_output(client, execution, raw=raw, timestamps=timestamps)
        return
    if follow:
        async for chunk in client.follow_logs(execution):
            out.value(chunk)
        return
    # "@last" must not become another execution between two pages.
    ref = (await client.execution(execution)).execution_id
    printer, place = LogPrinter(raw=raw, timestamps=timestamps), ""
    while True:
        piece = await client.logs(ref, place=place)
        for chunk in piece.chunks:
            if out.is_text:
                printer.write(chunk)
            else:
                out.value(chunk)
        if not piece.chunks or piece.place == place:
            printer.end()
            return
        place = piece.place


@executions.command
@click.argument("execution")
@click.option("--get", "name", metavar="NAME", help="Artifact to download instead of listing all.")
@click.option(
    "--to", "target", metavar="FILE", help="Target of the download; - is stdout.  [default: the artifact's name]"
)
@connected
async def artifacts(client: AsyncClient, out: Output, execution: str, name: str | None, target: str | None) -> None:
    """List the artifacts of an execution, or download one."""
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
    print_message(f"saved {name} to {path}")


async def fetch(client: AsyncClient, execution: str, name: str, file: BinaryIO) -> None:
    """Download a whole artifact and verify its checksum."""
    ref = (await client.execution(execution)).execution_id
    found = next((a for a in (await client.artifacts(ref)).items if a.name == name), None)
    if found is None:
        raise NotFound(f"the execution has no artifact {name!r}")
    digest = hashlib.sha256()
    async for piece in client.artifact(ref, name):
        digest.update(piece)
        file.write(piece)
    if digest.hexdigest() != found.sha256:
        raise Unavailable(f"checksum mismatch of artifact {name!r}; try again")


@executions.command
@click.argument("execution")
@reason_option
@connected
async def cancel(client: AsyncClient, out: Output, execution: str, reason: str) -> None:
    """Cancel an execution."""
    found = await client.cancel(execution, reason)
    pending = ", being cancelled" if found.cancelling and found.finished_at is None else ""
    out.one(found, EXECUTIONS, lambda e: f"{e.execution_id}  {e.title}  {state_text(e.state)}{pending}")


@executions.command
@click.argument("execution")
@params_option
@reason_option
@connected
async def requeue(client: AsyncClient, out: Output, execution: str, params: dict[str, Any] | None, reason: str) -> None:
    """Run an ended execution again, with the same parameters or those of -p. An open dead letter is replayed."""
    found = await client.requeue(execution, params=params, reason=reason)
    out.one(found, EXECUTIONS, lambda e: f"{e.execution_id}  {e.title}  {state_text(e.state)}")


@executions.command
@click.argument("execution")
@timeout_option
@connected
async def wait(client: AsyncClient, out: Output, execution: str, timeout: float) -> None:
    """Wait until an execution ends.

    Exit code: 0 succeeded, 10 failed, 11 cancelled, 12 timed out.
    """
    final = await client.wait(execution, timeout_s=timeout)
    out.one(final, EXECUTIONS, lambda e: feed_line(e, color=has_color(sys.stdout)))
    raise click.exceptions.Exit(state_code(final.state))

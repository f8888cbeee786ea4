"""`mainspring jobs needs`: dependencies between jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo, print_message
from mainspring.display.times import local, span

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

_GLYPHS = {"pending": "⧗", "satisfied": "✔", "failed": "✖", "stale": "◷"}


def _why(need: wire.Dependency) -> str:
    if need.freed_as is not None and need.freed_at is not None and need.freed_at > need.since_at:
        return f"{'marked as succeeded' if need.freed_as == 'forced' else 'skipped'} by {need.freed_by}: {need.reason}"
    if need.deleted_at is not None and need.state != "satisfied":
        return f"deleted {local(need.deleted_at)}; remove the dependency with: mainspring jobs needs remove"
    return f"succeeded {local(need.succeeded_at)}" if need.succeeded_at is not None else ""


NEEDS: TableLayout[wire.Dependency] = TableLayout(
    name=lambda need: need.job,
    columns=[
        Column("NEEDS", lambda need: need.job, wraps=True),
        Column("STATE", lambda need: f"{_GLYPHS[need.state]} {need.state}"),
        Column("SINCE", lambda need: local(need.since_at)),
        Column("MAX AGE", lambda need: span(need.timeout_s * 1000) if need.timeout_s else ""),
        Column("MAX WAIT", lambda need: span(need.wait_s * 1000) if need.wait_s else ""),
        Column("REASON", _why, wraps=True),
        Column("BY", lambda need: need.created_by, wide=True),
    ],
    empty="no dependencies",
)


@click.group(cls=Group)
def needs() -> None:
    """List, add and remove the dependencies of a job. It runs when all of them have succeeded."""


@needs.command("list")
@click.argument("job")
@connected
async def list_needs(client: AsyncClient, out: Output, job: str) -> None:
    """List the dependencies of JOB and their state.

    The state counts from the last execution of JOB. Also prints the order of all connected jobs.
    """
    _show(out, await client.needs(job))


@needs.command
@click.argument("job")
@click.argument("parent")
@click.option("--timeout", type=seconds, metavar="DURATION", help="Maximum age of the success of PARENT.")
@click.option(
    "--wait",
    type=seconds,
    metavar="DURATION",
    help="Maximum time that a fire of JOB waits for PARENT.  [default: unlimited]",
)
@connected
async def add(
    client: AsyncClient, out: Output, job: str, parent: str, timeout: float | None, wait: float | None
) -> None:
    """Make JOB depend on PARENT. If JOB has a schedule, its fires wait for PARENT."""
    found = await client.add_need(job, parent, timeout=timeout, wait=wait)
    print_message(f"{job} needs {parent}")
    _show(out, found)


@needs.command
@click.argument("job")
@click.argument("parent")
@connected
async def remove(client: AsyncClient, out: Output, job: str, parent: str) -> None:
    """Remove the dependency of JOB on PARENT. Fires that waited only for PARENT start."""
    await client.remove_need(job, parent)
    print_message(f"{job} no longer needs {parent}")
    _show(out, await client.needs(job))


def _show(out: Output, found: wire.Dependencies) -> None:
    out.listed(found, found.needs, NEEDS)
    if out.is_text and len(found.order) > 1:
        echo(f"order: {' → '.join(found.order)}")

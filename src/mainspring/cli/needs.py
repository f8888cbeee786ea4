"""`mainspring jobs needs`: which jobs must have succeeded before another is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected
from mainspring.cli.output import Column, Output, TableLayout, print_message
from mainspring.display.times import local, span

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

_GLYPHS = {"pending": "⧗", "satisfied": "✔", "failed": "✖", "stale": "◷"}


def _why(need: wire.Dependency) -> str:
    if need.freed_as is not None and need.freed_at is not None and need.freed_at > need.since_at:
        return f"{'counts as done' if need.freed_as == 'forced' else 'skipped'} by {need.freed_by}: {need.reason}"
    if need.deleted_at is not None and need.state != "satisfied":
        return f"deleted {local(need.deleted_at)}; go on without it: mainspring jobs needs remove"
    return f"succeeded {local(need.succeeded_at)}" if need.succeeded_at is not None else ""


NEEDS: TableLayout[wire.Dependency] = TableLayout(
    name=lambda need: need.job,
    columns=[
        Column("NEEDS", lambda need: need.job, wraps=True),
        Column("STATE", lambda need: f"{_GLYPHS[need.state]} {need.state}"),
        Column("SINCE", lambda need: local(need.since_at)),
        Column("NOT OLDER THAN", lambda need: span(need.timeout_s * 1000) if need.timeout_s else ""),
        Column("WAITS AT MOST", lambda need: span(need.wait_s * 1000) if need.wait_s else ""),
        Column("WHY", _why, wraps=True),
        Column("BY", lambda need: need.created_by, wide=True),
    ],
    empty="needs no other job",
)


@click.group
def needs() -> None:
    """List, add and remove the jobs that a job needs: it is executed when all of them have succeeded."""


@needs.command("list")
@click.argument("job")
@connected
async def list_needs(client: AsyncClient, out: Output, job: str) -> None:
    """List what JOB needs, whether it is met since JOB was last executed, and the order of all that hang together."""
    _show(out, await client.needs(job))


@needs.command
@click.argument("job")
@click.argument("parent")
@click.option("--timeout", type=seconds, metavar="D", help="A success of PARENT longer ago does not count.")
@click.option("--wait", type=seconds, metavar="D", help="So long a fire of JOB waits for PARENT.  [for good]")
@connected
async def add(
    client: AsyncClient, out: Output, job: str, parent: str, timeout: float | None, wait: float | None
) -> None:
    """Execute JOB when PARENT has succeeded, with all it needs. With a schedule, its fires wait for PARENT."""
    found = await client.add_need(job, parent, timeout=timeout, wait=wait)
    print_message(f"{job} needs {parent}")
    _show(out, found)


@needs.command
@click.argument("job")
@click.argument("parent")
@connected
async def remove(client: AsyncClient, out: Output, job: str, parent: str) -> None:
    """JOB does not need PARENT any more; a fire that waited for nothing else goes on."""
    await client.remove_need(job, parent)
    print_message(f"{job} does not need {parent} any more")
    _show(out, await client.needs(job))


def _show(out: Output, found: wire.Dependencies) -> None:
    out.page(wire.Page(items=found.needs), NEEDS)
    if out.is_text and len(found.order) > 1:
        click.echo(f"order: {' → '.join(found.order)}")

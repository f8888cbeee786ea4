"""Commands that inspect the installation: workers, shards, doctor, events, ui."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.feed import feed_line, follow
from mainspring.cli.output import Output, has_color
from mainspring.cli.tables.executions import EXECUTIONS
from mainspring.cli.tables.fleet import SCHEDULERS, SHARDS, WORKERS, worker_details
from mainspring.display.text import clean
from mainspring.domain.errors import NotFound

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

_NUMBER = re.compile(r"^I\d+ ")
"""The number of an invariant in the title of a check; it stays in the JSON output."""


@click.group
def workers() -> None:
    """List workers."""


@workers.command("list")
@connected
async def list_workers(client: AsyncClient, out: Output) -> None:
    """List workers with their slots and last heartbeat."""
    out.page(await client.workers(), WORKERS)


@workers.command("show")
@click.argument("name")
@connected
async def show_worker(client: AsyncClient, out: Output, name: str) -> None:
    """Show a worker: its capacity, labels and sandbox features."""
    found = next((worker for worker in (await client.workers()).items if worker.name == name), None)
    if found is None:
        raise NotFound(f"no worker {name!r} in the last day; list workers with: mainspring workers list")
    out.one(found, WORKERS, worker_details)


@click.command
@connected
async def shards(client: AsyncClient, out: Output) -> None:
    """List schedulers, and the owner and lag of each shard."""
    found = await client.shards()
    if out.is_text:
        out.page(wire.Page(items=found.schedulers), SCHEDULERS)
        click.echo()
        out.page(wire.Page(items=found.shards), SHARDS)
    else:
        out.value(found)


@click.command
@click.option("--all", "everything", is_flag=True, help="Check all history, not only the newest executions.")
@connected
async def doctor(client: AsyncClient, out: Output, everything: bool) -> None:
    """Check the health of the server and its data. Exit code 1 if a check fails."""
    diagnosis = await client.doctor(everything=everything)
    if out.is_text:
        click.echo("\n".join(_diagnosis_lines(diagnosis, color=has_color(sys.stdout))))
    else:
        out.value(diagnosis)
    if not diagnosis.healthy:
        raise click.exceptions.Exit(1)


@click.command
@connected
async def ui(client: AsyncClient, out: Output) -> None:
    """Print a sign-in link for the web UI. It expires after an hour."""
    link = await client.login_link()
    if out.format in ("json", "jsonl"):
        out.value(link)
    else:
        click.echo(client.server.url + link.path)


@click.command
@click.option("--follow", "-f", "follows", is_flag=True, help="Stream executions from now on.")
@connected
async def events(client: AsyncClient, out: Output, follows: bool) -> None:
    """Print executions as they end, one per line. Without --follow: the last twenty."""
    if follows:
        async for execution in follow(client):
            _print_event(out, execution)
    else:
        for execution in reversed((await client.executions(limit=20)).items):
            _print_event(out, execution)


def _print_event(out: Output, execution: wire.Execution) -> None:
    line = Output("jsonl") if out.format == "json" else out
    line.one(execution, EXECUTIONS, lambda e: feed_line(e, color=has_color(sys.stdout)))


def _diagnosis_lines(diagnosis: wire.Diagnosis, *, color: bool) -> list[str]:
    lines = []
    failing = {finding.check for finding in diagnosis.findings}
    for check, result in diagnosis.checks.items():
        good = check not in failing and result == "ok"
        glyph = "✔" if good else "✖"
        shown = click.style(glyph, fg="green" if good else "red") if color else glyph
        lines.append(f"{shown} {_NUMBER.sub('', check)}" + ("" if good else f": {result}"))
        lines += [f"    {clean(f.offender)}: {clean(f.what)}" for f in diagnosis.findings if f.check == check]
    lines += [f"✖ {f.check}: {f.offender}: {f.what}" for f in diagnosis.findings if f.check not in diagnosis.checks]
    lines += [f"· time zone rules {diagnosis.tzdata}"] if diagnosis.tzdata else []
    lines += [f"· {clean(note)}" for note in diagnosis.notes]
    return [*lines, "healthy" if diagnosis.healthy else "not healthy"]

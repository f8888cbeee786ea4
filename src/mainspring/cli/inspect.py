"""Commands that inspect the installation: workers, shards, doctor, events, ui."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from mainspring import wire
from mainspring.cli.command_options import reason_option
from mainspring.cli.connect import connected
from mainspring.cli.feed import feed_line, follow
from mainspring.cli.group import Group
from mainspring.cli.output import Output, echo, has_color
from mainspring.cli.private_file import write_private
from mainspring.cli.tables.executions import EXECUTIONS
from mainspring.cli.tables.fleet import SCHEDULERS, SHARDS, WORKERS, worker_details
from mainspring.clock import millis
from mainspring.display.text import clean
from mainspring.display.times import now
from mainspring.domain.errors import NotFound

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

_NUMBER = re.compile(r"^I\d+ ")
"""The number of an invariant in the title of a check; it stays in the JSON output."""


@click.group(cls=Group)
def workers() -> None:
    """List, drain and resume workers, and issue tokens for them."""


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


@workers.command
@click.argument("name")
@reason_option
@connected
async def drain(client: AsyncClient, out: Output, name: str, reason: str) -> None:
    """Drain a worker: it finishes what it runs and claims nothing more, until it is resumed or restarted."""
    out.row(await client.drain_worker(name, reason), WORKERS)


@workers.command
@click.argument("name")
@reason_option
@connected
async def resume(client: AsyncClient, out: Output, name: str, reason: str) -> None:
    """Let a drained worker claim executions again."""
    out.row(await client.resume_worker(name, reason), WORKERS)


@workers.command("token")
@click.argument("name")
@click.option(
    "-q", "--queue", "queues", multiple=True, required=True, metavar="NAME", help="Queue that it grants. Repeatable."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label that its workers may have. Repeatable."
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    default=("*",),
    show_default=True,
    metavar="KIND",
    help="Task kind that its workers may execute. Repeatable.",
)
@click.option("--expires", metavar="DURATION", help="Lifetime, such as 90d.  [default: unlimited]")
@click.option(
    "--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file, mode 600."
)
@connected
async def issue_token(
    client: AsyncClient,
    out: Output,
    name: str,
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    kinds: tuple[str, ...],
    expires: str | None,
    path: Path | None,
) -> None:
    """Issue a token for workers. It is shown only once.

    Its workers can serve the queues, have the labels and execute the kinds that it grants, and no others. A grant may
    be a prefix that ends in *; * alone grants everything.

    \b
    Examples:
      mainspring workers token fleet --queue short --queue long --file worker.token
      mainspring workers token gpu --queue 'gpu-*' --label zone=eu --expires 90d
    """
    new = wire.NewWorkerToken(
        name=name, queues=list(queues), labels=list(labels), kinds=list(kinds), expires_in=expires
    )
    issued = await client.issue_worker_token(new)
    if path is not None:
        write_private(path, issued.token)
        echo(f"{issued.name}: {path}", err=True)
    elif out.is_text:
        echo(issued.token)
    else:
        out.value(issued)


@click.command
@connected
async def shards(client: AsyncClient, out: Output) -> None:
    """List schedulers, and the owner and lag of each shard."""
    found = await client.shards()
    if out.is_text:
        out.page(wire.Page(items=found.schedulers), SCHEDULERS)
        echo()
    out.listed(found, found.shards, SHARDS)


@click.command
@click.option("--all", "everything", is_flag=True, help="Check all history, not only the newest executions.")
@connected
async def doctor(client: AsyncClient, out: Output, everything: bool) -> None:
    """Check the health of the server and its data. Exit code 1 if a check fails."""
    diagnosis = await client.doctor(everything=everything)
    if out.is_text:
        echo("\n".join(_diagnosis_lines(diagnosis, color=has_color(sys.stdout))))
    else:
        out.value(diagnosis)
    if not diagnosis.healthy:
        raise click.exceptions.Exit(1)


@click.command
@connected
async def ui(client: AsyncClient, out: Output) -> None:
    """Print a sign-in link for the web UI. It works once, in one browser, and expires after an hour."""
    link = await client.login_link()
    if out.format in ("json", "jsonl", "yaml"):
        out.value(link)
    else:
        echo(client.server.url + link.path)


@click.command
@click.option("--follow", "-f", "follows", is_flag=True, help="Stream executions from now on.")
@connected
async def events(client: AsyncClient, out: Output, follows: bool) -> None:
    """Print executions as they end, one per line. Without --follow: the last twenty."""
    if follows:
        async for execution in follow(client):
            _print_event(out, execution)
    else:
        for execution in reversed((await client.executions(limit=20, cursor=_due_by_now())).items):
            _print_event(out, execution)


def _due_by_now() -> str:
    """The cursor that leaves out executions that are due later: ids begin with the due time."""
    return str(UUID(int=(millis(now()) + 1) << 80))


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

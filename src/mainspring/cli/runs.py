"""`mainspring runs`: look at runs of workflows, decide, cancel and repeat them."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected, gather
from mainspring.cli.failure import state_code
from mainspring.cli.graph import drawing_width, graph_lines
from mainspring.cli.jobs import limit_option
from mainspring.cli.output import Output, has_color
from mainspring.cli.tables.runs import RUNS, run_details, run_head, run_line, run_nodes, timeline_lines

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group
def runs() -> None:
    """List and look at runs of workflows; approve, skip, cancel and repeat.

    RUN is an id, the unique beginning of one, or @last for the newest.
    """


@runs.command("list")
@click.option("--workflow", metavar="NAME", help="Only those of one workflow.")
@click.option("--state", multiple=True, help="Only those in this state; repeatable.")
@limit_option(20)
@connected
async def list_runs(client: AsyncClient, out: Output, workflow: str | None, state: tuple[str, ...], limit: int) -> None:
    """List runs, newest first."""
    found = await gather(
        lambda count, cursor: client.runs(workflow=workflow, states=state, limit=count, cursor=cursor), limit
    )
    out.page(found, RUNS)


@runs.command
@click.argument("run")
@click.option("--items", is_flag=True, help="Also each item of mapped and repeated steps.")
@connected
async def show(client: AsyncClient, out: Output, run: str, items: bool) -> None:
    """Show a run and the state of each step."""
    out.one(await client.run(run, items=items), RUNS, run_details)


@runs.command
@click.argument("run")
@connected
async def graph(client: AsyncClient, out: Output, run: str) -> None:
    """Draw a run: its steps behind those they need, with their states and how long each took."""
    found = await client.run(run)
    if not out.is_text:
        out.value(found)
        return
    if not found.steps:
        raise click.ClickException(f"the run has no steps to draw: it is {found.state}")
    click.echo(run_head(found))
    click.echo("\n".join(graph_lines(run_nodes(found.steps, color=has_color(sys.stdout)), drawing_width())))


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--item", type=int, help="Of a mapped or repeated step: this one.")
@connected
async def timeline(client: AsyncClient, out: Output, run: str, step: str, item: int | None) -> None:
    """Show what happened to a step, in order."""
    found = await client.step_timeline(run, step, item=item)
    if out.is_text:
        click.echo("\n".join(timeline_lines(found)))
    else:
        out.value(found)


@runs.command
@click.argument("run")
@click.option("--timeout", type=seconds, default=math.inf, metavar="D", help="Wait no longer than this (exit code 8).")
@connected
async def wait(client: AsyncClient, out: Output, run: str, timeout: float) -> None:
    """Wait until a run has ended; the exit code tells how."""
    await finish(client, out, (await client.run(run)).run_id, timeout)


async def finish(client: AsyncClient, out: Output, run_id: UUID, timeout_s: float) -> None:
    """Waits for the end of a run, which is an execution too, and shows what became of it."""
    ended = await client.wait(run_id, timeout_s=timeout_s)
    out.one(await client.run(run_id), RUNS, run_details)
    raise click.exceptions.Exit(state_code(ended.state))


@runs.command
@click.argument("run")
@click.option("--reason", default="", help="Why.")
@connected
async def cancel(client: AsyncClient, out: Output, run: str, reason: str) -> None:
    """End a run; steps that always run still do."""
    out.one(await client.cancel_run(run, reason), RUNS, run_line)


@runs.command
@click.argument("run")
@click.option("--from", "from_step", metavar="STEP", help="From this step on.  [those that did not succeed]")
@connected
async def rerun(client: AsyncClient, out: Output, run: str, from_step: str | None) -> None:
    """Repeat a run that has ended; results of steps that are not repeated are kept."""
    out.one(await client.rerun(run, from_step=from_step), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--note", default="", help="What others should know.")
@connected
async def approve(client: AsyncClient, out: Output, run: str, step: str, note: str) -> None:
    """Approve a step that waits for it."""
    out.one(await client.decide(run, step, approved=True, note=note), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--note", default="", help="What others should know.")
@connected
async def reject(client: AsyncClient, out: Output, run: str, step: str, note: str) -> None:
    """Reject a step that waits for approval."""
    out.one(await client.decide(run, step, approved=False, note=note), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--reason", required=True, help="Why.")
@connected
async def skip(client: AsyncClient, out: Output, run: str, step: str, reason: str) -> None:
    """Leave a step out; those behind it go on."""
    out.one(await client.skip_step(run, step, reason), RUNS, run_line)


@runs.command("force-complete")
@click.argument("run")
@click.argument("step")
@click.option("--reason", required=True, help="Why.")
@click.option("--result", metavar="JSON", help="The result that steps behind it see.")
@connected
async def force_complete(
    client: AsyncClient, out: Output, run: str, step: str, reason: str, result: str | None
) -> None:
    """Count a step as succeeded."""
    out.one(await client.force_complete_step(run, step, reason, _json(result)), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("name")
@click.option("--payload", metavar="JSON", help="What the waiting step gets as its result.")
@connected
async def event(client: AsyncClient, out: Output, run: str, name: str, payload: str | None) -> None:
    """Send an event to a run."""
    out.one(await client.send_event(run, name, _json(payload)), RUNS, run_line)


def _json(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text is not None and text.lstrip()[:1] in ("{", "[", '"'):
            raise click.UsageError(f"{text!r} is not JSON: {error}") from None
        return text

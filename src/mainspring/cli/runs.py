"""`mainspring runs`: inspect, cancel and rerun workflow runs; approve steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from mainspring.cli.command_options import limit_option, reason_option, required_reason_option, timeout_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.failure import state_code
from mainspring.cli.graph import drawing_width, graph_lines
from mainspring.cli.group import Group
from mainspring.cli.output import Output, echo, has_color
from mainspring.cli.tables.runs import RUNS, run_details, run_head, run_line, run_nodes, timeline_lines

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group(cls=Group)
def runs() -> None:
    """List, inspect, cancel and rerun workflow runs; approve and skip steps.

    RUN is an id, a unique prefix of one, or @last for the newest.
    """


@runs.command("list")
@click.option("--workflow", metavar="NAME", help="Workflow name.")
@click.option("--state", multiple=True, metavar="STATE", help="State. Repeatable.")
@limit_option(20)
@connected
async def list_runs(client: AsyncClient, out: Output, workflow: str | None, state: tuple[str, ...], limit: int) -> None:
    """List workflow runs, newest first."""
    found = await gather(
        lambda count, cursor: client.runs(workflow=workflow, states=state, limit=count, cursor=cursor), limit
    )
    out.page(found, RUNS)


@runs.command
@click.argument("run")
@click.option("--items", is_flag=True, help="Include each item of mapped and repeated steps.")
@connected
async def show(client: AsyncClient, out: Output, run: str, items: bool) -> None:
    """Show a run and the state of each step."""
    out.one(await client.run(run, items=items), RUNS, run_details)


@runs.command
@click.argument("run")
@connected
async def graph(client: AsyncClient, out: Output, run: str) -> None:
    """Draw the steps of a run. Shows dependencies, states and durations."""
    found = await client.run(run)
    if not out.is_text:
        out.value(found)
        return
    if not found.steps:
        raise click.ClickException(f"the run is {found.state} and has no steps to draw")
    echo(run_head(found))
    echo("\n".join(graph_lines(run_nodes(found.steps, color=has_color(sys.stdout)), drawing_width())))


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--item", type=int, metavar="N", help="Item of a mapped or repeated step.")
@connected
async def timeline(client: AsyncClient, out: Output, run: str, step: str, item: int | None) -> None:
    """List the events of a step in order."""
    found = await client.step_timeline(run, step, item=item)
    if out.is_text:
        echo("\n".join(timeline_lines(found)))
    else:
        out.value(found)


@runs.command
@click.argument("run")
@timeout_option
@connected
async def wait(client: AsyncClient, out: Output, run: str, timeout: float) -> None:
    """Wait until a run ends. Exit code: 0 succeeded, 10 failed, 11 cancelled, 12 timed out."""
    await finish(client, out, (await client.run(run)).run_id, timeout)


async def finish(client: AsyncClient, out: Output, run_id: UUID, timeout_s: float) -> None:
    """Wait until a run ends, print it and exit with the code of its outcome. A run is an execution too."""
    ended = await client.wait(run_id, timeout_s=timeout_s)
    out.one(await client.run(run_id), RUNS, run_details)
    raise click.exceptions.Exit(state_code(ended.state))


@runs.command
@click.argument("run")
@reason_option
@connected
async def cancel(client: AsyncClient, out: Output, run: str, reason: str) -> None:
    """Cancel a run. Steps that always run still run."""
    out.one(await client.cancel_run(run, reason), RUNS, run_line)


@runs.command
@click.argument("run")
@click.option(
    "--from", "from_step", metavar="STEP", help="First step to rerun.  [default: the steps that did not succeed]"
)
@connected
async def rerun(client: AsyncClient, out: Output, run: str, from_step: str | None) -> None:
    """Rerun a run that has ended. Steps that are not rerun keep their results."""
    out.one(await client.rerun(run, from_step=from_step), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--note", default="", metavar="TEXT", help="Note for the audit log.")
@connected
async def approve(client: AsyncClient, out: Output, run: str, step: str, note: str) -> None:
    """Approve a step."""
    out.one(await client.decide(run, step, approved=True, note=note), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--note", default="", metavar="TEXT", help="Note for the audit log.")
@connected
async def reject(client: AsyncClient, out: Output, run: str, step: str, note: str) -> None:
    """Reject a step."""
    out.one(await client.decide(run, step, approved=False, note=note), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("step")
@required_reason_option
@connected
async def skip(client: AsyncClient, out: Output, run: str, step: str, reason: str) -> None:
    """Skip a step that has not succeeded. Steps that depend on it continue, after the end of the run in a new one."""
    out.one(await client.skip_step(run, step, reason), RUNS, run_line)


@runs.command("force-complete")
@click.argument("run")
@click.argument("step")
@required_reason_option
@click.option("--result", metavar="JSON", help="Result that dependent steps see.")
@connected
async def force_complete(
    client: AsyncClient, out: Output, run: str, step: str, reason: str, result: str | None
) -> None:
    """Mark a step as succeeded, also one that has failed. After the end of the run, a new run continues."""
    out.one(await client.force_complete_step(run, step, reason, _json(result)), RUNS, run_line)


@runs.command
@click.argument("run")
@click.argument("name")
@click.option("--payload", metavar="JSON", help="Payload, which becomes the result of the waiting step.")
@connected
async def event(client: AsyncClient, out: Output, run: str, name: str, payload: str | None) -> None:
    """Send an event to a run."""
    out.one(await client.send_event(run, name, _json(payload)), RUNS, run_line)


def _json(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text is not None and text.lstrip()[:1] in ("{", "[", '"'):
            raise click.UsageError(f"Invalid JSON: {text!r}: {error}") from None
        return text

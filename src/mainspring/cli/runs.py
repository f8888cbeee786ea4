"""`mainspring runs`: look at runs of workflows, decide, cancel and repeat them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected, gather
from mainspring.cli.failure import state_code
from mainspring.cli.graph import Node, drawing_width, graph_lines
from mainspring.cli.jobs import limit_option
from mainspring.cli.output import Column, Look, Output, aligned, has_color
from mainspring.display.text import clean
from mainspring.display.times import local, span
from mainspring.domain.workflow.plan import topological

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

GLYPHS = {
    "queued": "◌", "blocked": "⧗", "waiting": "✋", "running": "▶", "succeeded": "✔", "failed": "✖", "partial": "◐",
    "timed_out": "✖", "cancelled": "⊘", "cancelling": "⊘", "skipped": "↷", "lost": "☠",
}  # fmt: skip


MOST_WORDS = 200
COLORS = {
    "succeeded": "green", "failed": "red", "timed_out": "red", "lost": "red", "partial": "yellow", "waiting": "yellow",
    "running": "cyan", "cancelled": "bright_black", "skipped": "bright_black", "blocked": "bright_black",
}  # fmt: skip


def _state(state: str) -> str:
    return f"{GLYPHS[state]} {state.replace('_', ' ')}"


def took(found: wire.Run) -> str:
    if found.started_at is None or found.finished_at is None:
        return ""
    return span((found.finished_at - found.started_at).total_seconds() * 1000)


RUNS: Look[wire.Run] = Look(
    name=lambda found: str(found.run_id),
    columns=[
        Column("RUN", lambda found: str(found.run_id)),
        Column("WORKFLOW", lambda found: found.workflow, wraps=True),
        Column("STATE", lambda found: _state(found.state)),
        Column("STARTED", lambda found: local(found.started_at) if found.started_at else ""),
        Column("TOOK", took),
        Column("OPEN", lambda found: str(found.open_steps)),
        Column("REASON", lambda found: found.reason or "", wide=True, wraps=True),
    ],
    empty="no runs yet; start one with: mainspring workflows run NAME",
)


def run_line(found: wire.Run) -> str:
    return f"{found.run_id}  {found.workflow}  {_state(found.state)}"


def run_details(found: wire.Run) -> str:
    """A run and its steps, one line each."""
    rows = [
        [
            f"{'  · ' if step.item is not None else ''}{step.name}{'' if step.item is None else f'[{step.item}]'}",
            _state(step.state),
            _step_took(step),
            _remarks(step),
        ]
        for step in found.steps
    ]
    head = f"{found.workflow} (version {found.version})  {_state(found.state)}  {took(found)}".rstrip()
    reason = [f"  {found.reason}"] if found.reason else []
    if found.blocked:
        reason.append(f"  could not start because of {', '.join(found.failed)}: {', '.join(found.blocked)}")
    return "\n".join([head, f"  {found.run_id}", *reason, *aligned([[clean(c) for c in r] for r in rows], "  ")])


def _step_took(step: wire.RunStep) -> str:
    begun = step.started_at or step.released_at
    if begun is None or step.finished_at is None:
        return ""
    return span((step.finished_at - begun).total_seconds() * 1000)


def _remarks(step: wire.RunStep) -> str:
    parts = []
    if step.items is not None:
        parts.append(f"{step.items - (step.open_items or 0)}/{step.items} items")
    if step.kind == "approval" and step.state == "waiting":
        parts.append(f"asks {'an admin' if step.scope == 'admin' else 'somebody'}: {step.message or 'approve?'}")
    if step.wake_at is not None and step.finished_at is None:
        parts.append(f"until {local(step.wake_at)}")
    if step.flag is not None and not step.reason:  # the reason says it, and who did it
        parts.append(step.flag)
    if step.critical:
        parts.append("critical path")
    if step.blocked_by:
        return " · ".join([*parts, f"blocked by {', '.join(step.blocked_by)}"])
    return " · ".join([*parts, *([shortened(step.reason)] if step.reason else [])])


def shortened(text: str) -> str:
    """So that a line is a line; the timeline of the step has all of it."""
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"


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
    if not out.for_people:
        out.value(found)
        return
    if not found.steps:
        raise click.ClickException(f"the run has no steps to draw: it is {found.state}")
    click.echo(f"{found.workflow} (version {found.version})  {_state(found.state)}  {took(found)}".rstrip())
    click.echo("\n".join(graph_lines(run_nodes(found.steps, color=has_color(sys.stdout)), drawing_width())))


def run_nodes(steps: Sequence[wire.RunStep], *, color: bool) -> list[Node]:
    """The steps of a run to be drawn, each after all it needs."""
    steps = [step for step in steps if step.item is None]
    number = {step.name: n for n, step in enumerate(steps)}
    order = topological([[number[need] for need in step.needs] for step in steps])
    return [_node(steps[n], color=color) for n in order]


def _node(step: wire.RunStep, *, color: bool) -> Node:
    items = "" if step.items is None else f" {step.items - (step.open_items or 0)}/{step.items}"
    label = f"{GLYPHS[step.state]} {step.name}{items} {_step_took(step)}".rstrip()
    hue = COLORS.get(step.state)
    return Node(step.name, step.needs, label, lambda text: click.style(text, fg=hue) if color and hue else text)


@runs.command
@click.argument("run")
@click.argument("step")
@click.option("--item", type=int, help="Of a mapped or repeated step: this one.")
@connected
async def timeline(client: AsyncClient, out: Output, run: str, step: str, item: int | None) -> None:
    """Show what happened to a step, in order."""
    found = await client.step_timeline(run, step, item=item)
    if out.for_people:
        click.echo("\n".join(timeline_lines(found)))
    else:
        out.value(found)


def timeline_lines(found: wire.StepTimeline) -> list[str]:
    step = found.step
    name = f"{step.name}{'' if step.item is None else f'[{step.item}]'}"
    rows = [[local(e.at), e.event, f"attempt {e.attempt}" if e.attempt else "", e.text or ""] for e in found.events]
    items = [[f"{step.name}[{i.item}]", _state(i.state), _step_took(i), _remarks(i)] for i in found.items]
    return [
        f"{name}  {_state(step.state)}  {_remarks(step)}".rstrip(),
        *aligned([[clean(c) for c in r] for r in rows], "  "),
        *aligned([[clean(c) for c in r] for r in items], "  "),
    ]


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

"""`mainspring workflows`: write, look at, run and draw workflows."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected, gather
from mainspring.cli.graph import Node, drawing_width, graph_lines
from mainspring.cli.jobs import detach_option, limit_option
from mainspring.cli.output import Column, Output, TableLayout, print_message
from mainspring.cli.run import params_option
from mainspring.cli.runs import finish
from mainspring.cli.tables.runs import RUNS, run_line
from mainspring.display.times import distance, local, now
from mainspring.domain.workflow.spec import Step, WorkflowSpec

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

WORKFLOWS: TableLayout[wire.WorkflowLine] = TableLayout(
    name=lambda found: found.name,
    columns=[
        Column("NAME", lambda found: found.name, wraps=True),
        Column("STEPS", lambda found: str(found.steps)),
        Column("STATE", lambda found: "⏸ paused" if found.paused else "● active"),
        Column("VERSION", lambda found: str(found.version)),
        Column("CHANGED", lambda found: local(found.updated_at)),
        Column("ID", lambda found: str(found.job_id), wide=True),
    ],
    empty="no workflows yet; write one as YAML and: mainspring workflows apply FILE",
)
VERSIONS: TableLayout[wire.WorkflowChange] = TableLayout(
    name=lambda found: str(found.version),
    columns=[
        Column("VERSION", lambda found: str(found.version)),
        Column("CREATED", lambda found: local(found.created_at)),
        Column("BY", lambda found: found.created_by),
        Column("STEPS", lambda found: str(found.steps)),
        Column("CHANGED", lambda found: change_text(found), wraps=True),
    ],
    empty="no versions",
)
_MARKS = {"approval": "✋", "event": "⚑", "wait": "⏲", "workflow": "▣", "task": "▪"}


@click.group
def workflows() -> None:
    """Write, look at, run, draw and export workflows."""


@workflows.command
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--dry-run", is_flag=True, help="Only say whether it is right, and in which order its steps can run.")
@connected
async def apply(client: AsyncClient, out: Output, file: Any, dry_run: bool) -> None:
    """Make the workflows of FILE as it says: YAML (- for standard input), or Python with @workflow functions.

    Runs that have begun stay as they are.
    """
    from mainspring.manifest import read_workflows

    specs = _declared(file.name) if str(file.name).endswith(".py") else read_workflows(file.read())
    orders = [(await client.check_workflow(spec)).order for spec in specs]
    if dry_run:
        for spec, order in zip(specs, orders, strict=True):
            click.echo(f"{spec.name}: right, {len(order)} steps: {' → '.join(order[:20])}")
        return
    for spec in specs:
        found = await client.apply_workflow(spec)
        out.one(found, _NAMED, _applied)


@workflows.command("list")
@limit_option(50)
@connected
async def list_workflows(client: AsyncClient, out: Output, limit: int) -> None:
    """List workflows by name."""
    out.page(await gather(lambda count, cursor: client.workflows(limit=count, cursor=cursor), limit), WORKFLOWS)


@workflows.command
@click.argument("workflow")
@connected
async def show(client: AsyncClient, out: Output, workflow: str) -> None:
    """Show a workflow: its schedule, its steps and what each needs."""
    out.one(await client.workflow(workflow), _NAMED, _details)


@workflows.command
@click.argument("workflow")
@params_option
@click.option("--key", metavar="K", help="The same key gives the same run, for a day.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it ended.")
@click.option("--timeout", type=seconds, default=math.inf, metavar="D", help="Wait no longer than this (exit code 8).")
@click.option("--reason", default="", help="Why, for the audit.")
@connected
async def run(
    client: AsyncClient,
    out: Output,
    workflow: str,
    params: dict[str, Any] | None,
    key: str | None,
    wait: bool,
    timeout: float,
    reason: str,
) -> None:
    """Start a run of WORKFLOW now."""
    found = await client.start_run(workflow, params, key=key, reason=reason)
    if not wait:
        out.one(found, RUNS, run_line)
        return
    print_message(f"run {found.run_id}")
    await finish(client, out, found.run_id, timeout)


@workflows.command
@click.argument("workflow")
@connected
async def graph(client: AsyncClient, out: Output, workflow: str) -> None:
    """Draw a workflow: each step in a column behind those it needs. What is too wide or long is listed instead.

    A run with the states of its steps is drawn by: mainspring runs graph RUN
    """
    found = await client.workflow(workflow)
    if not out.is_text:
        out.value(found)
        return
    nodes = [Node(name, found.spec.steps[name].needs, _label(name, found.spec.steps[name])) for name in found.order]
    click.echo("\n".join(graph_lines(nodes, drawing_width())))


@workflows.command
@click.argument("workflow")
@click.option("--version", type=click.IntRange(1), metavar="N", help="As it was in this version.")
@connected
async def export(client: AsyncClient, out: Output, workflow: str, version: int | None) -> None:
    """Print a workflow as YAML that `apply` reads."""
    from mainspring.manifest import write_workflow

    found = await client.workflow(workflow) if version is None else await client.workflow_version(workflow, version)
    sys.stdout.write(write_workflow(found.spec))


@workflows.command
@click.argument("workflow")
@limit_option(20)
@connected
async def versions(client: AsyncClient, out: Output, workflow: str, limit: int) -> None:
    """List the versions of a workflow, newest first, and what each changed."""
    out.page(
        await gather(
            lambda count, cursor: client.workflow_versions(workflow, limit=min(count, 50), cursor=cursor), limit
        ),
        VERSIONS,
    )


@workflows.command
@click.argument("workflow")
@click.argument("version", type=click.IntRange(1))
@connected
async def rollback(client: AsyncClient, out: Output, workflow: str, version: int) -> None:
    """Bring an earlier version of a workflow back, as a new one; runs that have begun stay as they are."""
    out.one(await client.rollback_workflow(workflow, version), _NAMED, _applied)


@workflows.command
@click.argument("workflow")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
@detach_option
@connected
async def delete(client: AsyncClient, out: Output, workflow: str, yes: bool, reason: str, detach: bool) -> None:
    """Delete a workflow; its runs go on. One that others need or have as a step stays, but for --detach."""
    if not yes and (not sys.stdin.isatty() or not click.confirm(f"Delete {workflow}?", err=True)):
        raise click.UsageError("nothing was deleted: say --yes")
    await client.delete_workflow(workflow, reason=reason, detach=detach)
    print_message(f"deleted {workflow}")


def _declared(path: str) -> list[WorkflowSpec]:
    """What a file of Python declares; it is executed, as by any import."""
    import importlib.util
    from pathlib import Path

    from mainspring.sdk.workflow import declared_workflows

    sys.path.insert(0, str(Path(path).resolve().parent))
    module = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert module is not None and module.loader is not None
    loaded = importlib.util.module_from_spec(module)
    sys.modules[module.name] = loaded
    module.loader.exec_module(loaded)
    mine = [w.spec for w in declared_workflows.values() if Path(w.file).resolve() == Path(path).resolve()]
    if not mine:
        raise click.UsageError(f"{path} declares no workflow: decorate a function with @mainspring.workflow()")
    return mine


_NAMED: TableLayout[wire.Workflow] = TableLayout(name=lambda found: found.name, columns=[], empty="")


def _applied(found: wire.Workflow) -> str:
    when = f", next run {distance(found.next_fire_at, now())}" if found.next_fire_at else ""
    return f"{found.name}: version {found.version}, {len(found.order)} steps{when}"


def _details(found: wire.Workflow) -> str:
    lines = [
        f"{found.name}  version {found.version}  {found.state}",
        f"  schedule  {found.schedule_description or 'on demand'}",
    ]
    if found.next_fire_at is not None:
        lines.append(f"  next run  {local(found.next_fire_at)}  ({distance(found.next_fire_at, now())})")
    if found.spec.params:
        lines.append(f"  params    {', '.join(found.spec.params)}")
    lines.append("  steps")
    return "\n".join([*lines, *(f"    {_step_text(name, found.spec.steps[name])}" for name in found.order)])


def change_text(found: wire.WorkflowChange) -> str:
    """What a version changed, in one line: the steps it added, removed and changed, then its other fields."""
    steps = [("+", found.added), ("-", found.removed), ("~", found.changed)]
    parts = [f"{sign}{name}" for sign, names in steps for name in names[:5]]
    more = sum(max(0, len(names) - 5) for _, names in steps)
    parts += [f"and {more} more steps"] if more else []
    return " ".join([*parts, *(name for name in found.fields if name != "steps")])


def _label(name: str, step: Step) -> str:
    many = " ×n" if step.map is not None else f" ≤{step.repeat.max}×" if step.repeat is not None else ""
    return f"{_MARKS[step.kind]} {name}{many}{' ?' if step.when is not None else ''}"


def _step_text(name: str, step: Step) -> str:
    from mainspring.domain.job import task_text

    what = task_text(step.task) if step.task is not None else step.workflow or step.kind
    needs = f"  after {', '.join(step.needs)}" if step.needs else ""
    when = f"  when {step.when}" if step.when else ""
    return f"{_MARKS[step.kind]} {name}: {what}{needs}{when}"

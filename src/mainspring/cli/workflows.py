"""`mainspring workflows`: apply, run, draw and export workflows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.command_options import detach_option, limit_option, reason_option, timeout_option, yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.graph import Node, drawing_width, graph_lines
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo, is_terminal, print_message
from mainspring.cli.run import params_option
from mainspring.cli.runs import finish
from mainspring.cli.tables.runs import RUNS, run_line
from mainspring.display.times import distance, local, now
from mainspring.domain.metadata import contact_fields
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
    empty="no workflows; create one from YAML with: mainspring workflows apply FILE",
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


@click.group(cls=Group)
def workflows() -> None:
    """Apply, list, run, draw and export workflows."""


@workflows.command
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--dry-run", is_flag=True, help="Validate the file and print the order of the steps.")
@connected
async def apply(client: AsyncClient, out: Output, file: Any, dry_run: bool) -> None:
    """Create or update workflows from a file.

    FILE is YAML (- for stdin), or Python with @workflow functions. Runs that have started are not affected.
    """
    from mainspring.manifest import read_workflows

    specs = _declared(file.name) if str(file.name).endswith(".py") else read_workflows(file.read())
    checked = [await client.check_workflow(spec) for spec in specs]
    if dry_run:
        for spec, found in zip(specs, checked, strict=True):
            if out.is_text or out.format == "name":
                echo(f"{spec.name}: valid, {len(found.order)} steps: {' → '.join(found.order[:20])}")
            else:
                out.value(found)
        return
    for spec in specs:
        out.one(await client.apply_workflow(spec), _NAMED, _applied)


@workflows.command("list")
@limit_option(50)
@connected
async def list_workflows(client: AsyncClient, out: Output, limit: int) -> None:
    """List workflows."""
    out.page(await gather(lambda count, cursor: client.workflows(limit=count, cursor=cursor), limit), WORKFLOWS)


@workflows.command
@click.argument("workflow")
@connected
async def show(client: AsyncClient, out: Output, workflow: str) -> None:
    """Show a workflow: its schedule, steps and dependencies."""
    out.one(await client.workflow(workflow), _NAMED, _details)


@workflows.command
@click.argument("workflow")
@params_option
@click.option("--key", metavar="KEY", help="Idempotency key; for a day the same key returns the same run.")
@click.option("--wait", is_flag=True, help="Wait until it ends; the exit code is its outcome.")
@timeout_option
@reason_option
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
    """Start a run of a workflow."""
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
    """Draw the steps of a workflow with their dependencies. A graph that is too large is printed as a list.

    To draw a run with the states of its steps: mainspring runs graph RUN
    """
    found = await client.workflow(workflow)
    if not out.is_text:
        out.value(found)
        return
    nodes = [Node(name, found.spec.steps[name].needs, _label(name, found.spec.steps[name])) for name in found.order]
    echo("\n".join(graph_lines(nodes, drawing_width())))


@workflows.command
@click.argument("workflow")
@click.option("--version", type=click.IntRange(1), metavar="N", help="Version.  [default: the latest]")
@connected
async def export(client: AsyncClient, out: Output, workflow: str, version: int | None) -> None:
    """Print a workflow as YAML for `apply`."""
    from mainspring.manifest import write_workflow

    found = await client.workflow(workflow) if version is None else await client.workflow_version(workflow, version)
    text = write_workflow(found.spec)
    if is_terminal(sys.stdout):
        echo(text, nl=False)
    else:
        sys.stdout.write(text)  # as it is: for a file that is applied again


@workflows.command
@click.argument("workflow")
@limit_option(20)
@connected
async def versions(client: AsyncClient, out: Output, workflow: str, limit: int) -> None:
    """List the versions of a workflow and their changes, newest first."""
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
    """Restore an earlier version of a workflow, as a new version. Runs that have started are not affected."""
    out.one(await client.rollback_workflow(workflow, version), _NAMED, _applied)


@workflows.command
@click.argument("workflow")
@yes_option
@reason_option
@detach_option
@connected
async def delete(client: AsyncClient, out: Output, workflow: str, yes: bool, reason: str, detach: bool) -> None:
    """Delete a workflow. Its runs continue. One that others use is deleted only with --detach."""
    confirm(f"delete the workflow {workflow}", yes=yes)
    await client.delete_workflow(workflow, reason=reason, detach=detach)
    print_message(f"{workflow} deleted")


def _declared(path: str) -> list[WorkflowSpec]:
    """The workflows that a Python file declares; the file is imported."""
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
        raise click.UsageError(f"No workflow in {path}: decorate a function with @mainspring.workflow().")
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
    contact = contact_fields(found.spec.metadata)
    lines += [f"  {name.ljust(8)}  {contact[name]}" for name in ("owner", "runbook") if name in contact]
    lines += [f"  notifies  {', '.join(entry.to)} on {', '.join(entry.on)}" for entry in found.spec.notify]
    if found.spec.params:
        lines.append(f"  params    {', '.join(found.spec.params)}")
    lines.append("  steps")
    return "\n".join([*lines, *(f"    {_step_text(name, found.spec.steps[name])}" for name in found.order)])


def change_text(found: wire.WorkflowChange) -> str:
    """The changes of a version in one line: steps added, removed and changed, then other fields."""
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

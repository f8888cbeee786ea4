"""Tables, details, timelines and graphs of workflow runs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring import wire
from mainspring.cli.graph import Node
from mainspring.cli.output import Column, TableLayout, aligned
from mainspring.display.text import clean
from mainspring.display.times import local, local_exact, span
from mainspring.domain.workflow.plan import topological

GLYPHS = {
    "queued": "◌", "blocked": "⧗", "waiting": "✋", "running": "▶", "succeeded": "✔", "failed": "✖", "partial": "◐",
    "timed_out": "✖", "cancelled": "⊘", "cancelling": "⊘", "skipped": "↷", "lost": "☠",
}  # fmt: skip


COLORS = {
    "succeeded": "green", "failed": "red", "timed_out": "red", "lost": "red", "partial": "yellow", "waiting": "yellow",
    "running": "cyan", "cancelled": "bright_black", "skipped": "bright_black", "blocked": "bright_black",
}  # fmt: skip


MAX_REASON_CHARS = 200


RUNS: TableLayout[wire.Run] = TableLayout(
    name=lambda found: str(found.run_id),
    columns=[
        Column("RUN", lambda found: str(found.run_id)),
        Column("WORKFLOW", lambda found: found.workflow, wraps=True),
        Column("STATE", lambda found: run_state_text(found.state)),
        Column("STARTED", lambda found: local(found.started_at) if found.started_at else ""),
        Column("DURATION", lambda found: duration_text(found)),
        Column("OPEN STEPS", lambda found: str(found.open_steps)),
        Column("REASON", lambda found: found.reason or "", wide=True, wraps=True),
    ],
    empty="no runs; start one with: mainspring workflows run NAME",
)


def run_line(found: wire.Run) -> str:
    return f"{found.run_id}  {found.workflow}  {run_state_text(found.state)}"


def run_head(found: wire.Run) -> str:
    return f"{found.workflow} (version {found.version})  {run_state_text(found.state)}  {duration_text(found)}".rstrip()


def run_details(found: wire.Run) -> str:
    """A run and its steps, one line each."""
    rows = [
        [
            f"{'  · ' if step.item is not None else ''}{step.name}{'' if step.item is None else f'[{step.item}]'}",
            run_state_text(step.state),
            duration_text(step),
            step_notes(step),
        ]
        for step in found.steps
    ]
    reason = [f"  {clean(found.reason)}"] if found.reason else []
    if found.blocked:
        reason.append(f"  blocked by {', '.join(found.failed)}: {', '.join(found.blocked)}")
    return "\n".join(
        [run_head(found), f"  {found.run_id}", *reason, *aligned([[clean(c) for c in r] for r in rows], "  ")]
    )


def timeline_lines(found: wire.StepTimeline) -> list[str]:
    step = found.step
    name = f"{step.name}{'' if step.item is None else f'[{step.item}]'}"
    rows = [
        [local_exact(e.at), e.event, f"attempt {e.attempt}" if e.attempt else "", e.text or ""] for e in found.events
    ]
    items = [[f"{step.name}[{i.item}]", run_state_text(i.state), duration_text(i), step_notes(i)] for i in found.items]
    return [
        f"{name}  {run_state_text(step.state)}  {step_notes(step)}".rstrip(),
        *aligned([[clean(c) for c in r] for r in rows], "  "),
        *aligned([[clean(c) for c in r] for r in items], "  "),
    ]


def run_nodes(steps: Sequence[wire.RunStep], *, color: bool) -> list[Node]:
    """The steps of a run as graph nodes, in topological order."""
    steps = [step for step in steps if step.item is None]
    number = {step.name: n for n, step in enumerate(steps)}
    order = topological([[number[need] for need in step.needs] for step in steps])
    return [_node(steps[n], color=color) for n in order]


def _node(step: wire.RunStep, *, color: bool) -> Node:
    items = "" if step.items is None else f" {step.items - (step.open_items or 0)}/{step.items}"
    label = f"{GLYPHS[step.state]} {step.name}{items} {duration_text(step)}".rstrip()
    hue = COLORS.get(step.state)
    return Node(step.name, step.needs, label, lambda text: click.style(text, fg=hue) if color and hue else text)


def run_state_text(state: str) -> str:
    return f"{GLYPHS[state]} {state.replace('_', ' ')}"


def duration_text(found: wire.Run | wire.RunStep) -> str:
    return "" if found.duration_ms is None else span(found.duration_ms)


def step_notes(step: wire.RunStep) -> str:
    parts = []
    if step.items is not None:
        parts.append(f"{step.items - (step.open_items or 0)}/{step.items} items")
    if step.kind == "approval" and step.state == "waiting":
        parts.append(f"needs approval{' by an admin' if step.scope == 'admin' else ''}: {step.message or 'approve?'}")
    if step.wake_at is not None and step.finished_at is None:
        parts.append(f"until {local(step.wake_at)}")
    if step.flag is not None and not step.reason:  # the reason repeats the flag and names the user
        parts.append(step.flag)
    if step.critical:
        parts.append("critical path")
    if step.blocked_by:
        return " · ".join([*parts, f"blocked by {', '.join(step.blocked_by)}"])
    return " · ".join([*parts, *([shorten(step.reason)] if step.reason else [])])


def shorten(text: str) -> str:
    """The beginning of a long reason; the step's timeline shows all of it."""
    return text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}…"

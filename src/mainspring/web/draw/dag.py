"""The graph of a workflow or run: boxes from left to right, edges, and the critical path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from mainspring import wire
from mainspring.display.times import span
from mainspring.domain.job import ShellTask
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow.folding import Fold, Folding
from mainspring.domain.workflow.layout import critical_path, node_positions
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.web.draw.states import STATE_STYLES, StateStyle

BOX_W, BOX_H, GAP_X, GAP_Y = 184, 48, 52, 16
MARGIN = 8

STEP_STYLES: dict[str, StateStyle] = {
    **STATE_STYLES,
    "waiting": StateStyle("waiting", "hourglass", "retry"),
    "partial": StateStyle("partial", "alert", "bad"),
    "cancelling": StateStyle("cancelling", "barred", "dim"),
}
BY_CONCERN = (
    "failed", "timed_out", "lost", "running", "waiting", "queued", "cancelled", "skipped", "blocked", "succeeded",
)  # fmt: skip
"""States of steps, those that need attention first."""
_CONCERN = {state: rank for rank, state in enumerate(BY_CONCERN)}


@dataclass(frozen=True, slots=True)
class Box:
    """A step, or a stack of several. `done` is the share of its parts that have ended, if it has parts."""

    key: str
    name: str
    title: str
    x: int
    y: int
    style: StateStyle | None
    text: str
    done: float | None
    critical: bool
    href: str
    opens: bool
    shape: str = ""
    """`map`: one execution per item, drawn as a pile. `branch`: starts on a condition, drawn with a dashed edge."""


@dataclass(frozen=True, slots=True)
class Edge:
    start: str
    end: str
    d: str
    critical: bool
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and edges with their positions. `folded`: some boxes stand for several steps; `path`: the critical path."""

    width: int
    height: int
    boxes: list[Box]
    edges: list[Edge]
    folded: bool
    path: list[str]


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps in topological order, with what each needs. `steps` is empty for a definition that is not a run."""

    order: Sequence[str]
    needs: Mapping[str, Sequence[str]]
    kinds: Mapping[str, str]
    shapes: Mapping[str, str]
    steps: Mapping[str, wire.RunStep]


def of_workflow(spec: WorkflowSpec, order: Sequence[str]) -> Graph:
    kinds = {name: step_kind(step) for name, step in spec.steps.items()}
    return Graph(order, {name: step.needs for name, step in spec.steps.items()}, kinds, _shapes(spec), {})


def of_run(steps: Sequence[wire.RunStep], order: Sequence[str], spec: WorkflowSpec) -> Graph:
    kinds = {name: step_kind(step) for name, step in spec.steps.items()}
    return Graph(order, {s.name: s.needs for s in steps}, kinds, _shapes(spec), {s.name: s for s in steps})


def step_kind(step: Step) -> str:
    """Return what a step does in few words: `shell: echo`, `python: load`, `approval`."""
    match step.task:
        case None:
            of = step.workflow or (step.event.name if step.event else "")
            return f"{step.kind}: {of}" if of else step.kind
        case ShellTask(argv=argv):
            return f"shell: {argv[0]}"
        case PythonTask(function=function):
            return f"python: {function.rpartition('.')[2]}"
    return str(msgspec.to_builtins(step.task)["kind"])


def _shapes(spec: WorkflowSpec) -> dict[str, str]:
    return {name: "map" if step.map else "branch" if step.when else "" for name, step in spec.steps.items()}


def state_of(step: wire.RunStep) -> str:
    """Return the state to show: a running step whose execution no worker has claimed yet is queued."""
    queued = step.state == "running" and step.kind == "task" and step.items is None and step.started_at is None
    return "queued" if queued else step.state


def seconds(step: wire.RunStep, at: datetime) -> float:
    """Return the duration of a step so far. A step kept from an earlier run has none."""
    if step.released_at is None or step.flag == "kept":
        return 0.0
    return max(0.0, ((step.finished_at or at) - step.released_at).total_seconds())


def draw(graph: Graph, at: datetime, *, opened: Collection[str] = (), here: str = "") -> Drawing | None:
    """Lay out a graph; None if it has no steps. `here` is the prefix of links to steps and stacks."""
    if not graph.order:
        return None
    durations = {name: seconds(step, at) for name, step in graph.steps.items()}
    path = critical_path(graph.needs, graph.order, durations) if graph.steps else []
    folds = _folding(graph, opened).folds()
    fold_of = {number: fold.key for fold in folds for number in fold.members}
    number_of = {name: number for number, name in enumerate(graph.order)}
    key_of = {name: fold_of[number] for name, number in number_of.items()}
    needs: dict[str, list[str]] = {fold.key: [] for fold in folds}
    for name in graph.order:
        for need in graph.needs[name]:
            if key_of[need] != key_of[name] and key_of[need] not in needs[key_of[name]]:
                needs[key_of[name]].append(key_of[need])
    critical = {key_of[name] for name in path}
    critical_edges = set(zip([key_of[n] for n in path], [key_of[n] for n in path[1:]], strict=False))
    spot = {found.name: found for found in node_positions(needs, [fold.key for fold in folds])}
    boxes = {
        f.key: _box(graph, f, durations, spot[f.key].column, spot[f.key].row, f.key in critical, here) for f in folds
    }
    edges = [
        Edge(
            need,
            key,
            _curve(boxes[need], boxes[key]),
            (need, key) in critical_edges,
            boxes[key].shape == "branch",
        )
        for key, all_needed in needs.items()
        for need in all_needed
    ]
    width = 2 * MARGIN + BOX_W + max(box.x for box in boxes.values()) - MARGIN
    height = 2 * MARGIN + BOX_H + max(box.y for box in boxes.values()) - MARGIN
    return Drawing(width, height, list(boxes.values()), edges, len(folds) < len(graph.order), path)


def _folding(graph: Graph, opened: Collection[str]) -> Folding:
    number_of = {name: number for number, name in enumerate(graph.order)}
    needs = [[number_of[need] for need in graph.needs[name]] for name in graph.order]
    column: list[int] = []
    for needed in needs:
        column.append(1 + max((column[need] for need in needed), default=-1))

    def concern(number: int) -> int:
        step = graph.steps.get(graph.order[number])
        return 0 if step is None else _CONCERN[state_of(step)]

    return Folding(graph.order, needs, column, frozenset(opened), concern)


def _box(
    graph: Graph, fold: Fold, durations: Mapping[str, float], column: int, row: int, critical: bool, here: str
) -> Box:
    x, y = MARGIN + column * (BOX_W + GAP_X), MARGIN + row * (BOX_H + GAP_Y)
    if len(fold.members) > 1:
        return _folded(graph, fold, x, y, critical, here)
    name = graph.order[fold.members[0]]
    step = graph.steps.get(name)
    if step is None:
        shape, kind = graph.shapes[name], graph.kinds[name]
        text = f"each: {kind}" if shape == "map" else f"if: {kind}" if shape == "branch" else kind
        return Box(fold.key, name, name, x, y, None, text, None, critical, f"#step-{name}", False, shape)
    style = STEP_STYLES[state_of(step)]
    # Of an ended step the duration that every other page shows; of a running one, the time since its release.
    took_ms = step.duration_ms if step.finished_at is not None else durations[name] * 1000 or None
    parts = [] if took_ms is None else [span(took_ms)]
    done = None
    if step.items is not None:
        ended = step.items - (step.open_items or 0)
        parts.insert(0, f"{ended:,} of {step.items:,}")
        done = ended / step.items if step.items else 1.0
    title = f"{name}, {graph.kinds.get(name, step.kind)}: {style.label}" + (f". {step.reason}" if step.reason else "")
    return Box(
        fold.key,
        name,
        title,
        x,
        y,
        style,
        " · ".join(parts),
        done,
        critical,
        f"{here}&panel={name}#panel" if step.items is None else f"{here}&step={name}#step-{name}",
        False,
        graph.shapes.get(name, ""),
    )


def _folded(graph: Graph, fold: Fold, x: int, y: int, critical: bool, here: str) -> Box:
    count = f"{len(fold.members):,} steps"
    opens = f"{here}&open={fold.key}#picture" if fold.opens else f"{here}#steps"
    if not graph.steps:
        return Box(fold.key, fold.label, f"{fold.label}: {count}", x, y, None, count, None, critical, opens, fold.opens)
    states = Counter(state_of(graph.steps[graph.order[number]]) for number in fold.members)
    worst = min(states, key=_CONCERN.__getitem__)
    counts = ", ".join(f"{states[s]:,} {STEP_STYLES[s].label}" for s in BY_CONCERN if s in states)
    ended = sum(n for state, n in states.items() if state not in ("running", "waiting", "queued", "blocked"))
    text = count if len(states) == 1 else f"{states[worst]:,} of {len(fold.members):,}"
    done = ended / len(fold.members)
    return Box(
        fold.key,
        fold.label,
        f"{fold.label}, {count}: {counts}",
        x,
        y,
        STEP_STYLES[worst],
        text,
        done,
        critical,
        opens,
        fold.opens,
    )


def _curve(start: Box, end: Box) -> str:
    x1, y1 = start.x + BOX_W, start.y + BOX_H // 2
    x2, y2 = end.x, end.y + BOX_H // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"

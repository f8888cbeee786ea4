"""Graph layout: node positions in columns from left to right, slack and critical path. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodePosition:
    name: str
    column: int
    row: int


def node_positions(needs: Mapping[str, Sequence[str]], order: Sequence[str]) -> list[NodePosition]:
    """Place each step one column right of the last step it needs, and near the steps it needs within the column."""
    column: dict[str, int] = {}
    for name in order:
        column[name] = 1 + max((column[need] for need in needs[name]), default=-1)
    columns: dict[int, list[str]] = {}
    for name in order:
        columns.setdefault(column[name], []).append(name)
    row: dict[str, int] = {}
    for number in sorted(columns):
        names = columns[number]
        wish = {n: sum(row[need] for need in needs[n]) / len(needs[n]) if needs[n] else row.get(n, 0) for n in names}
        for place, name in enumerate(sorted(names, key=lambda n: (wish[n], order.index(n) if len(order) < 500 else 0))):
            row[name] = place
    return [NodePosition(name, column[name], row[name]) for name in order]


def slacks(needs: Mapping[str, Sequence[str]], order: Sequence[str], took: Mapping[str, float]) -> dict[str, float]:
    """The slack of each step: how much longer it could take without delaying the run. 0 on the critical path."""
    ends: dict[str, float] = {}
    for name in order:
        ends[name] = took.get(name, 0.0) + max((ends[need] for need in needs[name]), default=0.0)
    whole = max(ends.values(), default=0.0)
    latest = dict.fromkeys(order, whole)
    for name in reversed(order):
        for need in needs[name]:
            latest[need] = min(latest[need], latest[name] - took.get(name, 0.0))
    return {name: max(0.0, latest[name] - ends[name]) for name in order}


def critical_path(needs: Mapping[str, Sequence[str]], order: Sequence[str], took: Mapping[str, float]) -> list[str]:
    """The critical path: the chain of steps with the largest total duration."""
    longest: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for name in order:
        best = max(needs[name], key=lambda need: longest[need], default=None)
        before[name] = best
        longest[name] = took.get(name, 0.0) + (longest[best] if best is not None else 0.0)
    if not longest:
        return []
    step: str | None = max(order, key=lambda name: longest[name])
    path = []
    while step is not None:
        path.append(step)
        step = before[step]
    return path[::-1]

"""The Gantt chart of a run: when each step was released, started and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.display.times import span

WIDTH = 1000
MIN_WIDTH = 2.0
TICKS = 6
_GAPS_S = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepBar:
    """The bar of a step, in thousandths of the chart: its release, its wait for a worker, and its duration."""

    x: float
    waited: float
    ran: float


@dataclass(frozen=True, slots=True)
class GanttChart:
    """Bars by step and item, and the ticks of the time axis."""

    bars: dict[tuple[str, int | None], StepBar]
    ticks: list[tuple[float, str]]


def gantt_chart(
    steps: Sequence[wire.RunStep], starts: Mapping[UUID, datetime], begin: datetime, end: datetime
) -> GanttChart:
    """Draw the steps between `begin` and `end`. `starts` has the start of each execution."""
    whole = max(0.001, (end - begin).total_seconds())

    def place(at: datetime) -> float:
        return round(WIDTH * min(1.0, max(0.0, (at - begin).total_seconds() / whole)), 1)

    found = {}
    for step in steps:
        if step.released_at is None or step.flag == "kept":
            continue
        started = starts.get(step.execution_id) if step.execution_id is not None else None
        x = min(place(step.released_at), WIDTH - MIN_WIDTH)
        # A step without an execution, such as an approval, never waits for a worker.
        runs_from = place(started) if started is not None else x if step.execution_id is None else None
        until = place(step.finished_at or end)
        if runs_from is None:
            found[step.name, step.item] = StepBar(x, max(MIN_WIDTH, until - x), 0.0)
        else:
            ran = max(MIN_WIDTH, until - runs_from)
            found[step.name, step.item] = StepBar(x, max(0.0, runs_from - x), min(ran, WIDTH - max(x, runs_from)))
    return GanttChart(found, _ticks(whole))


def _ticks(whole_s: float) -> list[tuple[float, str]]:
    """Return at most TICKS ticks at round distances from the beginning."""
    gap_s = next((s for s in _GAPS_S if whole_s / s <= TICKS), _GAPS_S[-1] * (1 + int(whole_s // 86400 // TICKS)))
    return [
        (round(WIDTH * n * gap_s / whole_s, 1), f"+{span(1000 * n * gap_s)}")
        for n in range(1, TICKS + 1)
        if n * gap_s < whole_s
    ]

"""Charts of a job's latest executions: duration and start delay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.web.draw.states import StateStyle, state_style

WIDTH, HEIGHT = 1000, 160
MIN_FOR_PERCENTILES = 5
"""With fewer values p95 and p99 would only repeat the largest of them; the median is always shown."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    execution_id: UUID
    fire_at: datetime
    style: StateStyle
    value_ms: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class BarChart:
    """Values of executions from the oldest to the newest. `lines`: name, value and height of each percentile."""

    bars: list[ChartBar]
    most_ms: int
    lines: list[tuple[str, int, float]]


@dataclass(frozen=True, slots=True)
class JobCharts:
    duration: BarChart
    delay: BarChart
    ended: int
    succeeded: int
    skipped: int = 0
    """Fires without an execution among the latest ones."""


def job_charts(newest: Sequence[wire.Execution]) -> JobCharts:
    """Draw the executions that have ended. The delay counts for first attempts only."""
    ended = [e for e in reversed(newest) if e.finished_at is not None and e.state != "skipped"]
    durations = [(e, e.duration_ms) for e in ended if e.duration_ms is not None]
    delays = [(e, e.late_ms) for e in ended if e.late_ms is not None and e.attempt == 1]
    skipped = sum(e.fires for e in newest if e.state == "skipped")
    succeeded = sum(e.state == "succeeded" for e in ended)
    return JobCharts(_chart(durations), _chart(delays), len(ended), succeeded, skipped)


def _chart(values: Sequence[tuple[wire.Execution, int]]) -> BarChart:
    ordered = sorted(value for _, value in values)
    most = max(1, *ordered) if ordered else 1
    step = WIDTH / max(1, len(values))

    def height(value: int) -> float:
        return round(HEIGHT * (1 - value / most), 1)

    bars = [
        ChartBar(e.execution_id, e.fire_at, state_style(e), value, round(step * (n + 0.5), 1), height(value))
        for n, (e, value) in enumerate(values)
    ]
    all_shares = ((50, "p50"), (95, "p95"), (99, "p99"))
    shares = all_shares if len(ordered) >= MIN_FOR_PERCENTILES else all_shares[:1] if ordered else ()
    lines = [(name, _percentile(ordered, share)) for share, name in shares]
    return BarChart(bars, most, [(name, value, height(value)) for name, value in lines])


def _percentile(ordered: Sequence[int], share: int) -> int:
    """Return the smallest value that at least `share` percent of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]

"""The latest executions of a job as bars: height by duration, shape and colour by state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring import wire
from mainspring.web.draw.states import StateStyle, state_style

SHOWN = 20
STEP, HEIGHT, FLOOR = 6, 18, 3
"""Width of a bar with its gap, height of the slowest, and height of the fastest."""


@dataclass(frozen=True, slots=True)
class DurationBar:
    """`marked`: the execution failed; a mark below the bar says so without colour."""

    execution: wire.LastExecution
    style: StateStyle
    x: int
    y: float
    height: float
    marked: bool

    @property
    def execution_id(self) -> UUID:
        return self.execution.execution_id


def duration_bars(newest: Sequence[wire.LastExecution]) -> list[DurationBar]:
    """Draw the latest executions from the oldest to the newest; the newest is always at the right end.

    Heights are logarithmic from the fastest to the slowest, so that one slow execution does not flatten the others. If
    they differ by less than half, all are of medium height.
    """
    shown = list(newest)[:SHOWN][::-1]
    known = [max(1, e.duration_ms) for e in shown if e.duration_ms is not None]
    low, high = (math.log(min(known)), math.log(max(known))) if known else (0.0, 0.0)
    bars = []
    for n, e in enumerate(shown):
        share = 0.0 if e.duration_ms is None else 0.5
        if e.duration_ms is not None and high - low > math.log(1.5):
            share = (math.log(max(1, e.duration_ms)) - low) / (high - low)
        height = round(FLOOR + (HEIGHT - FLOOR) * share, 1)
        x = (SHOWN - len(shown) + n) * STEP
        failed = e.state in ("failed", "timed_out", "lost")
        bars.append(DurationBar(e, state_style(e), x, round(HEIGHT - height, 1), height, failed))
    return bars

"""Charts of the depth of queues over the last hours: one filled step line per queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mainspring.views.queue_history import QueueHistory

WIDTH, HEIGHT = 360, 60


@dataclass(frozen=True, slots=True)
class DepthChart:
    """The line of one queue as an SVG path; it has gaps where nothing was sampled."""

    queue: str
    path: str
    peak: int
    peak_at: datetime
    last: int | None


def depth_charts(history: QueueHistory) -> list[DepthChart]:
    return [_chart(history, queue, depths) for queue, depths in history.depths.items()]


def _chart(history: QueueHistory, queue: str, depths: Sequence[int | None]) -> DepthChart:
    peak = max(depth or 0 for depth in depths)
    peak_at = history.start_at + timedelta(seconds=history.step_s * [depth or 0 for depth in depths].index(peak))
    return DepthChart(queue, _path(depths, max(1, peak)), peak, peak_at, depths[-1])


def _path(depths: Sequence[int | None], peak: int) -> str:
    """Draw each run of known values as an area down to the base line; equal neighbours share one step."""
    step = WIDTH / len(depths)
    parts: list[str] = []
    before: int | None = None
    for n, depth in enumerate([*depths, None]):
        if depth == before:
            continue
        x = f"{n * step:g}"
        y = "" if depth is None else f"{HEIGHT - depth * (HEIGHT - 2) / peak:.4g}"
        if before is None:
            parts.append(f"M{x} {HEIGHT}V{y}")
        else:
            parts.append(f"H{x}V{HEIGHT}Z" if depth is None else f"H{x}V{y}")
        before = depth
    return "".join(parts)

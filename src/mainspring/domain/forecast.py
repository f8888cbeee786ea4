"""How many slots fires keep busy, from their durations: by hour, and by minute. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from mainspring.domain.flexible import MINUTE_MS, Minutes
from mainspring.domain.schedule.recurrence import Schedule

MAX_HOURS = 24
"""Executions count as busy for at most this long: longer ones are rare, and keep a whole day busy anyway."""
HOUR_MS = 60 * MINUTE_MS
SPREAD = 12
"""Starts that stand for the fires of an hour with many."""


def busy_slots(fires: Sequence[float], duration_h: float) -> list[float]:
    """The mean number of busy slots in each hour, from its fires and the duration of an execution in hours.

    The fires of an hour count as spread evenly over it. Executions that began before the first hour are not known.
    """
    shares = _shares(min(duration_h, MAX_HOURS))
    busy = [0.0] * len(fires)
    for hour, count in enumerate(fires):
        if count:
            for later, share in enumerate(shares[: len(fires) - hour]):
                busy[hour + later] += count * share
    return busy


def _shares(duration_h: float) -> list[float]:
    """How long an execution that begins at any time of an hour runs in that hour and each later one, on average."""

    def until(at: float) -> float:
        """Its running time until `at`, on average over its beginnings in [0, 1)."""
        return _since(at) - _since(at - duration_h)

    return [until(hour + 1) - until(hour) for hour in range(math.ceil(duration_h) + 1)]


def _since(at: float) -> float:
    """The mean of `at - begin`, or 0 if that is negative, over beginnings in [0, 1)."""
    if at <= 0:
        return 0.0
    return at * at / 2 if at < 1 else at - 0.5


def add_fires(minutes: Minutes, schedule: Schedule, jobs: float, takes_ms: float, *, lead_hours: int = 0) -> None:
    """Count the slots that the fires of a schedule keep busy in each minute. May raise `TooCostly`.

    More than two fires in an hour count as spread over it, so that the work does not grow with them. Fires up to
    `lead_hours` before the first minute are counted for as long as they run.
    """
    takes_ms = min(takes_ms, MAX_HOURS * HOUR_MS)
    lead = min(lead_hours, math.ceil(takes_ms / HOUR_MS)) * 60
    edges = [0.0] * (len(minutes.busy) + 1)
    for hour in range(-lead, len(minutes.busy), 60):
        begin_ms = minutes.begin_ms + hour * MINUTE_MS
        count = schedule.count_between(begin_ms - 1, begin_ms + HOUR_MS - 1)
        if count > 2:
            starts = [begin_ms + n * HOUR_MS // SPREAD for n in range(SPREAD)]
        else:
            starts = schedule.between(begin_ms - 1, begin_ms + HOUR_MS - 1, count) if count else []
        for start_ms in starts:
            _add_execution(minutes, edges, start_ms, takes_ms, jobs * count / len(starts))
    for n, busy in enumerate(accumulate(edges[:-1])):
        minutes.busy[n] += busy


def _add_execution(minutes: Minutes, edges: list[float], start_ms: int, takes_ms: float, weight: float) -> None:
    """Executions as long as minutes change the level at their edges; shorter ones count for a part of their minute."""
    last = len(minutes.busy)
    first = (start_ms - minutes.begin_ms) // MINUTE_MS
    if takes_ms < MINUTE_MS:
        if 0 <= first < last:
            minutes.busy[first] += weight * takes_ms / MINUTE_MS
        return
    end = first + round(takes_ms / MINUTE_MS)
    if first < last and end > 0:
        edges[max(first, 0)] += weight
        edges[min(end, last)] -= weight

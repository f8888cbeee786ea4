"""The timeline of an execution: due, queued, started, ended, and the time between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring import wire
from mainspring.display.times import span
from mainspring.domain.execution import LIVE

WIDTH = 1000
MIN_WIDTH = 6
"""Width of the smallest gap in the bar, so that three milliseconds next to an hour stay visible."""
SHOWN_OVERHEAD_MS = 10.0
"""From this on, the time that an attempt took beside its duration is shown."""


@dataclass(frozen=True, slots=True)
class TimelineGap:
    """The time before a step: its meaning, its duration and its place in the bar."""

    kind: str
    before: str
    duration: str
    after: str
    since: datetime | None  # set while the gap is open
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class TimelineStep:
    name: str
    at: datetime | None
    gap: TimelineGap | None


def timeline(execution: wire.Execution, now: datetime) -> list[TimelineStep]:
    """Return the steps of an execution so far, and the next one."""
    points = _points(execution)
    spans = [(_end(points[i + 1][1], now) - _end(points[i][1], now)).total_seconds() for i in range(len(points) - 1)]
    places = _places([max(0.0, s) for s in spans])
    steps = [TimelineStep(points[0][0], points[0][1], None)]
    for (name, at, kind), (_, before, _), seconds, (x, width) in zip(points[1:], points, spans, places, strict=False):
        head, tail = _words(kind, execution)
        since = before if at is None else None
        lasted_ms = max(0.0, seconds) * 1000
        if kind == "running" and at is not None and execution.duration_ms is not None:
            # The rest of the gap is the way to the worker and back, and starting and ending a process.
            lasted_ms, rest_ms = execution.duration_ms, lasted_ms - execution.duration_ms
            if rest_ms >= SHOWN_OVERHEAD_MS and rest_ms >= lasted_ms / 10:
                tail = f"and {span(rest_ms)} to start and report"
        steps.append(TimelineStep(name, at, TimelineGap(kind, head, span(lasted_ms), tail, since, x, width)))
    return steps


def _points(e: wire.Execution) -> list[tuple[str, datetime | None, str]]:
    """Return name, instant and kind of the gap before each step. An instant of None is in the future."""
    points: list[tuple[str, datetime | None, str]] = [("due", e.fire_at, "")]
    if e.due_at > e.fire_at:
        points.append(("due again" if e.attempt else "due", e.due_at, "retries" if e.attempt else "later"))
    if e.state == "waiting" or (e.queued_at is None and e.finished_at is None):
        return points
    if e.queued_at is not None:
        rescued = _earlier_attempts(e) > 0 and e.due_at == e.fire_at
        points.append(("queued", e.queued_at, "rescued" if rescued else "decided"))
    started = e.started_at if e.queued_at is None or (e.started_at or e.queued_at) >= e.queued_at else None
    if started is not None:
        points.append(("started", started, "queued"))
        points.append((_ending(e), e.finished_at, "running"))
    else:
        points.append(("started" if e.state in LIVE else _ending(e), e.finished_at, "queued"))
    return points


def _ending(e: wire.Execution) -> str:
    return "ended" if e.state in LIVE else e.state.replace("_", " ")


def _words(kind: str, e: wire.Execution) -> tuple[str, str]:
    """Return the words before and after the duration of a gap."""
    match kind:
        case "decided":
            return "scheduled after", ""
        case "queued" if e.started_at is None and e.state not in LIVE:
            return "never started; ended after", ""
        case "queued":
            return ("waiting" if e.state == "queued" else "waited"), "for a worker"
        case "retries":
            return f"{_attempts(e)} and backoff", ""
        case "rescued":
            return f"{_attempts(e)}, requeued after", ""
        case "later":
            return "delayed by", ""
    return ("running for" if e.finished_at is None else "ran"), ""


def _earlier_attempts(e: wire.Execution) -> int:
    """Return the number of attempts before the one that the timeline ends with."""
    return e.attempt if e.state in ("waiting", "queued") else e.attempt - 1


def _attempts(e: wire.Execution) -> str:
    return "attempt 1" if _earlier_attempts(e) == 1 else f"attempts 1 to {_earlier_attempts(e)}"


def _end(at: datetime | None, now: datetime) -> datetime:
    return now if at is None else at


def _places(spans: list[float]) -> list[tuple[int, int]]:
    """Return x and width of each gap in a bar of WIDTH: in proportion, but at least MIN_WIDTH."""
    total = sum(spans)
    room = WIDTH - MIN_WIDTH * len(spans)
    places, x = [], 0
    for seconds in spans:
        width = MIN_WIDTH + round(room * seconds / total) if total else WIDTH // len(spans)
        places.append((x, width))
        x += width
    return places

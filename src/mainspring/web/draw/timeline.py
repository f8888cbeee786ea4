"""Where the time of an execution went: due, queued, started, ended, and the gaps between, named in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring import wire
from mainspring.display.times import span
from mainspring.domain.execution import LIVE

WIDTH = 1000
LEAST = 6
"""So wide is the smallest gap in the bar: three milliseconds beside an hour can still be seen."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time before a step: what it was spent on, and its place in the bar."""

    kind: str
    before: str
    took: str
    after: str
    since: datetime | None  # set while it grows
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    at: datetime | None
    gap: Gap | None


def timeline(execution: wire.Execution, now: datetime) -> list[Step]:
    """The steps of an execution so far, and the one it waits for now."""
    points = _points(execution)
    spans = [(_end(points[i + 1][1], now) - _end(points[i][1], now)).total_seconds() for i in range(len(points) - 1)]
    places = _places([max(0.0, s) for s in spans])
    steps = [Step(points[0][0], points[0][1], None)]
    for (name, at, kind), (_, before, _), seconds, (x, width) in zip(points[1:], points, spans, places, strict=False):
        head, tail = _words(kind, execution)
        since = before if at is None else None
        steps.append(Step(name, at, Gap(kind, head, span(max(0.0, seconds) * 1000), tail, since, x, width)))
    return steps


def _points(e: wire.Execution) -> list[tuple[str, datetime | None, str]]:
    """Name, instant and kind of the gap before it. An instant of None is still to come."""
    points: list[tuple[str, datetime | None, str]] = [("due", e.fire_at, "")]
    if e.due_at > e.fire_at:
        points.append(("due again" if e.attempt else "due", e.due_at, "retries" if e.attempt else "later"))
    if e.state == "waiting" or (e.queued_at is None and e.finished_at is None):
        return points
    if e.queued_at is not None:
        rescued = _former(e) > 0 and e.due_at == e.fire_at
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
    """What stands before and after the duration of a gap."""
    match kind:
        case "decided":
            return "decided after", ""
        case "queued" if e.started_at is None and e.state not in LIVE:
            return "never started, ended after", ""
        case "queued":
            return ("waits" if e.state == "queued" else "waited"), "for a worker"
        case "retries":
            return f"{_attempts(e)} and backoff:", ""
        case "rescued":
            return f"{_attempts(e)}, given back after", ""
        case "later":
            return "put off by", ""
    return ("running for" if e.finished_at is None else "ran"), ""


def _former(e: wire.Execution) -> int:
    """How many attempts came before the one this timeline ends with."""
    return e.attempt if e.state in ("waiting", "queued") else e.attempt - 1


def _attempts(e: wire.Execution) -> str:
    return "attempt 1" if _former(e) == 1 else f"attempts 1 to {_former(e)}"


def _end(at: datetime | None, now: datetime) -> datetime:
    return now if at is None else at


def _places(spans: list[float]) -> list[tuple[int, int]]:
    """Where each gap lies in a bar of WIDTH: in proportion, but none invisible."""
    total = sum(spans)
    room = WIDTH - LEAST * len(spans)
    places, x = [], 0
    for seconds in spans:
        width = LEAST + round(room * seconds / total) if total else WIDTH // len(spans)
        places.append((x, width))
        x += width
    return places

"""Compares the fires of an imported schedule with the rules of its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from mainspring.domain.schedule.budget import TooCostly, steps
from mainspring.domain.schedule.key import compile_key
from mainspring.domain.schedule.recurrence import Once, Schedule
from mainspring.domain.schedule.schedule import bounded_key, resolve_all
from mainspring.domain.schedule.spec import ScheduleError, ScheduleSpecs
from mainspring.importers.rules.elapsed import SourceRule, zones_of
from mainspring.importers.rules.wall_clock import clock_changes

FIRES = 1_000
HORIZON_MS = 100 * 365 * 86_400_000
"""Rare schedules are compared for a century, though they have fewer fires in it."""
CHANGES = 4
"""Clock changes of the zone that are compared in full, whatever comes before them."""
AROUND_MS = 3 * 3_600_000
MOST_SHOWN = 5
_STEPS = 2_000_000
_MOST_AROUND = 30_000


@dataclass(frozen=True, slots=True)
class Difference:
    """An instant at which only one of the two fires."""

    at_ms: int
    only_in: str


@dataclass(slots=True)
class Comparison:
    """How many fires were compared, and where they differ."""

    fires: int = 0
    changes: int = 0
    differences: list[Difference] = field(default_factory=list)
    next_ms: list[int] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differences


def compare(schedule: ScheduleSpecs, rule: SourceRule, *, name: str, now_ms: int) -> Comparison:
    """Compare the next 1,000 fires, and all fires around the next four clock changes. Raises ScheduleError."""
    now_ms -= now_ms % 1000
    resolved = resolve_all(schedule, now_ms=now_ms, seed=f"1/{name}")
    compiled = Once(resolved.at_ms) if resolved.at_ms is not None else compile_key(bounded_key(resolved))
    found = Comparison()
    end = now_ms + HORIZON_MS
    try:
        with steps(_STEPS):
            ours = compiled.between(now_ms, end, FIRES)
            theirs = list(islice(_until(rule.fires(now_ms), end), FIRES))
            found.fires, found.next_ms = len(theirs), theirs[:3]
            found.differences = _differences(ours, theirs, FIRES)
            for zone in sorted(zones_of(rule) - {"UTC"}):
                for change in clock_changes(zone, now_ms, CHANGES):
                    _compare_around(found, compiled, rule, change)
    except TooCostly:
        message = "the fires take too many steps to compare"
        raise ScheduleError("schedule_too_costly", "", message, "use fewer fires, or several jobs") from None
    found.differences = sorted(set(found.differences), key=lambda one: one.at_ms)
    return found


def _compare_around(found: Comparison, schedule: Schedule, rule: SourceRule, change: int) -> None:
    start, end = change - AROUND_MS, change + AROUND_MS
    ours = schedule.between(start, end, _MOST_AROUND)
    theirs = list(islice(_until(rule.fires(start), end), _MOST_AROUND))
    found.changes += 1
    found.differences += _differences(ours, theirs, _MOST_AROUND)


def _differences(ours: list[int], theirs: list[int], most: int) -> list[Difference]:
    # After a difference, two lists that were cut at the same length end at different times.
    last = min(ours[-1], theirs[-1]) if len(ours) == len(theirs) == most else None
    mine = set(ours)
    apart = sorted(at for at in mine ^ set(theirs) if last is None or at <= last)
    return [Difference(at, "mainspring" if at in mine else "source") for at in apart[:MOST_SHOWN]]


def _until(fires: Iterator[int], end: int) -> Iterator[int]:
    for fire in fires:
        if fire > end:
            return
        yield fire

"""The heat map of the calendar: days from left to right, hours from top to bottom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring.clock import instant, millis
from mainspring.views.closures import BlackoutHours, Closures
from mainspring.views.fire_calendar import PastHour
from mainspring.views.fire_density import HOUR_MS
from mainspring.web.draw.filters import stamp
from mainspring.web.urls import link

DAYS_BACK = 7
DAYS_AHEAD = 8
LEVELS = 8


@dataclass(frozen=True, slots=True)
class HourCell:
    """An hour. `level` is 0 if empty, up to LEVELS for the busiest hour, scaled by the square root of the count."""

    at: datetime
    ahead: bool
    count: int
    failed: int
    exact: bool
    level: int
    href: str
    blackouts: Sequence[BlackoutHours] = ()
    minute: int | None = None
    """Of the current hour, the minutes that have passed."""

    @property
    def until(self) -> datetime:
        return self.at + timedelta(hours=1)

    @property
    def is_held(self) -> bool:
        """Whether a blackout over all jobs holds its fires back."""
        return any(b.holds_all_jobs for b in self.blackouts)


def days_shown(at: datetime, zone: str) -> list[datetime]:
    """The midnights of the days around today in a zone."""
    today = at.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    return [today + timedelta(days=n) for n in range(-DAYS_BACK, DAYS_AHEAD)]


def columns(
    at: datetime,
    begin_ms: int,
    plan: Sequence[int],
    exact: bool,
    past: Mapping[int, PastHour],
    zone: str = "UTC",
    closed: Closures | None = None,
    frequent: bool = False,
) -> list[tuple[date, list[HourCell]]]:
    """Return the days of a zone from left to right with their hours; the current hour counts as ahead."""
    closed = closed or Closures()
    most = max([1, *plan, *(p.fires for p in past.values())])
    found = []
    for midnight in days_shown(at, zone):
        cells = []
        # Counts are by hours of UTC. An hour of a zone with half hours shows the one that begins in it.
        for hour_ms in (-(-millis(midnight.replace(hour=hour)) // HOUR_MS) * HOUR_MS for hour in range(24)):
            index = (hour_ms - begin_ms) // HOUR_MS
            seen = past.get(hour_ms, PastHour(0, 0, True))
            count = seen.fires if index < 0 else plan[index] if index < len(plan) else 0
            cells.append(
                HourCell(
                    instant(hour_ms),
                    index >= 0,
                    count,
                    seen.failed if index < 0 else 0,
                    seen.exact if index < 0 else exact,
                    0 if not count else max(1, math.ceil(LEVELS * math.sqrt(count / most))),
                    _address(hour_ms, index >= 0, frequent),
                    closed.at(hour_ms),
                    (millis(at) - hour_ms) // 60_000 if index == 0 else None,
                )
            )
        found.append((midnight.date(), cells))
    return found


def _address(hour_ms: int, ahead: bool, frequent: bool) -> str:
    if ahead:
        return link("/calendar", frequent="1" if frequent else "", at=stamp(instant(hour_ms))) + "#hour"
    # Execution ids start with their fire time: a cursor at the end of the hour lists its executions, newest first.
    return link("/executions", cursor=str(UUID(int=(hour_ms + HOUR_MS) << 80)))

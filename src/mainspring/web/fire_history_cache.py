"""Fires of past hours, counted at most once in FRESH_S for each tenant."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from mainspring.clock import Clock, SystemClock, instant, millis
from mainspring.store.db import Database
from mainspring.views.fire_calendar import PastHour, past_day
from mainspring.views.fire_density import HOUR_MS

FRESH_S = 60.0
MAX_CACHED_DAYS = 512
HOURS_SHOWN = 24


@dataclass(frozen=True, slots=True)
class HourBar:
    """One hour of the last day; heights in percent of the busiest hour."""

    at: datetime
    past: PastHour
    height: float
    failed: float


class FireHistoryCache:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._days: dict[tuple[int, date, frozenset[int]], tuple[float, date, dict[int, PastHour]]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def hours(
        self, database: Database, at: datetime, *, back: int, tenant: int, hidden: frozenset[int] = frozenset()
    ) -> dict[int, PastHour]:
        """Return fires by hour for today and the last `back` days, without jobs on the `hidden` schedules.

        A day that is over is read once.
        """
        today = at.astimezone(UTC).date()
        found: dict[int, PastHour] = {}
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            if len(self._days) > MAX_CACHED_DAYS:
                self._days.clear()
            for day in (today - timedelta(days=n) for n in range(back, -1, -1)):
                known = self._days.get((tenant, day, hidden))
                # A count made before midnight does not cover the whole day.
                if known is None or (known[1] <= day and self._clock.monotonic() - known[0] > FRESH_S):
                    past = await past_day(database, day, tenant=tenant, hidden=hidden)
                    known = self._days[tenant, day, hidden] = (self._clock.monotonic(), today, past)
                for hour, seen in known[2].items():
                    before = found.get(hour, PastHour(0, 0, True))
                    exact = before.exact and seen.exact
                    found[hour] = PastHour(before.fires + seen.fires, before.failed + seen.failed, exact)
        return found

    async def bars(self, database: Database, at: datetime, *, tenant: int) -> list[HourBar]:
        """Return the last 24 hours; the current hour is the last one."""
        found = await self.hours(database, at, back=1, tenant=tenant)
        last = millis(at) // HOUR_MS * HOUR_MS
        hours = [last - n * HOUR_MS for n in range(HOURS_SHOWN - 1, -1, -1)]
        pasts = [found.get(hour, PastHour(0, 0, True)) for hour in hours]
        most = max(1, *(past.fires for past in pasts))
        return [
            HourBar(instant(hour), past, round(100 * past.fires / most, 1), round(100 * min(1, past.failed / most), 1))
            for hour, past in zip(hours, pasts, strict=True)
        ]

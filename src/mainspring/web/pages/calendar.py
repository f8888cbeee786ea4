"""The calendar: past and planned fires by hour, crowded minutes and how to spread them."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from starlette.responses import Response

from mainspring.clock import Clock, SystemClock, instant, millis
from mainspring.domain.errors import invalid
from mainspring.views import fire_calendar
from mainspring.views.agenda import agenda
from mainspring.views.fire_calendar import PastHour
from mainspring.views.fire_density import CROWDED, HOUR_MS, ScheduleLoads
from mainspring.web.draw.filters import stamp
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.fire_history_cache import FireHistoryCache
from mainspring.web.render import now, page

DAYS_BACK = 7
DAYS_AHEAD = 8
LEVELS = 8
HOURS_EXAMINED = 3
"""The busiest hours ahead that are examined minute by minute."""
PLAN_FRESH_S = 300.0


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


class Calendar:
    """GET /calendar; `at` selects an hour to show minute by minute, `view=agenda` the fires of the next day."""

    def __init__(self, density: FireDensityCache, history: FireHistoryCache, clock: Clock | None = None) -> None:
        self._density, self._history = density, history
        self._clock = clock or SystemClock()
        self._plans: dict[int, tuple[float, int, list[int]]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def __call__(self, request: PageRequest) -> Response:
        database, tenant = request.context.database, request.caller.tenant
        if request.query("view") == "agenda":
            often = bool(request.query("frequent"))
            found = await agenda(database, tenant=tenant, frequent=often)
            return page("agenda.html", request.caller, agenda=found, frequent=often)
        at = now()
        chosen = _hour(request.query("at"))
        loads = await self._density.loads(database, tenant=tenant)
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            begin_ms, plan = await self._plan(loads, at, tenant=tenant)
            past = await self._history.hours(database, at, back=DAYS_BACK, tenant=tenant)
        exact = fire_calendar.is_counted(loads)
        busiest = sorted(range(len(plan)), key=lambda n: -plan[n])[:HOURS_EXAMINED]
        crushes = [
            await asyncio.to_thread(fire_calendar.most_crowded, loads, begin_ms + n * HOUR_MS)
            for n in busiest
            if plan[n]
        ]
        here = (
            await asyncio.to_thread(fire_calendar.most_crowded, loads, millis(chosen)) if chosen is not None else None
        )
        return page(
            "calendar.html",
            request.caller,
            columns=columns(at, begin_ms, plan, exact, past, request.caller.zone),
            exact=exact,
            chosen=chosen,
            minutes=here,
            levels=LEVELS,
            crowded=CROWDED,
            busiest=_busiest(begin_ms, plan),
            loads=await fire_calendar.examples(database, here, tenant=tenant) if here is not None else [],
            proposals=await fire_calendar.proposals(database, crushes, tenant=tenant),
        )

    async def _plan(self, loads: ScheduleLoads, at: datetime, *, tenant: int) -> tuple[int, list[int]]:
        begin_ms = millis(at) // HOUR_MS * HOUR_MS
        known = self._plans.get(tenant)
        if known is not None and known[1] == begin_ms and self._clock.monotonic() - known[0] < PLAN_FRESH_S:
            return begin_ms, known[2]
        plan = await asyncio.to_thread(fire_calendar.planned, loads, begin_ms, DAYS_AHEAD * 24)
        self._plans[tenant] = (self._clock.monotonic(), begin_ms, plan)
        return begin_ms, plan


def columns(
    at: datetime, begin_ms: int, plan: list[int], exact: bool, past: dict[int, PastHour], zone: str = "UTC"
) -> list[tuple[date, list[HourCell]]]:
    """Return the days of a zone from left to right with their hours; the current hour counts as ahead."""
    today = at.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    most = max([1, *plan, *(p.fires for p in past.values())])
    found = []
    for n in range(-DAYS_BACK, DAYS_AHEAD):
        midnight, cells = today + timedelta(days=n), []
        # Counts are by hours of UTC. An hour of a zone with half hours shows the one that begins in it.
        for hour_ms in (-(-millis(midnight.replace(hour=hour)) // HOUR_MS) * HOUR_MS for hour in range(24)):
            index = (hour_ms - begin_ms) // HOUR_MS
            if index >= 0:
                count = plan[index] if index < len(plan) else 0
                cells.append(_cell(hour_ms, True, count, 0, exact, most))
            else:
                seen = past.get(hour_ms, PastHour(0, 0, True))
                cells.append(_cell(hour_ms, False, seen.fires, seen.failed, seen.exact, most))
        found.append((midnight.date(), cells))
    return found


def _cell(hour_ms: int, ahead: bool, count: int, failed: int, exact: bool, most: int) -> HourCell:
    level = 0 if not count else max(1, math.ceil(LEVELS * math.sqrt(count / most)))
    at = instant(hour_ms)
    # Execution ids start with their fire time: a cursor at the end of the hour lists its executions, newest first.
    href = f"?at={stamp(at)}#hour" if ahead else f"/executions?cursor={UUID(int=(hour_ms + HOUR_MS) << 80)}"
    return HourCell(at, ahead, count, failed, exact, level, href)


def _busiest(begin_ms: int, plan: list[int]) -> tuple[datetime, int] | None:
    best = max(range(len(plan)), key=plan.__getitem__)
    return (instant(begin_ms + best * HOUR_MS), plan[best]) if plan[best] else None


def _hour(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise invalid("/at", f"{text[:40]!r} is not a time", hint="such as 2026-11-16T03:00:00Z")
    return instant(millis(found) // HOUR_MS * HOUR_MS)

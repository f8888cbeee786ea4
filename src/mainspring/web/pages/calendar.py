"""The calendar: past and planned fires by hour, the fires of a range, crowded minutes and how to spread them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.clock import Clock, SystemClock, instant, millis
from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.filter import spell
from mainspring.views import fire_calendar, search
from mainspring.views.agenda import Agenda, agenda
from mainspring.views.closures import blocks_of, closures
from mainspring.views.fire_density import CROWDED, HOUR_MS, ScheduleLoads
from mainspring.web.draw.filters import stamp
from mainspring.web.draw.week import DAYS_AHEAD, DAYS_BACK, LEVELS, columns, days_shown
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.fire_history_cache import FireHistoryCache
from mainspring.web.forms.instant import parse_time
from mainspring.web.render import now, page
from mainspring.web.urls import link

HOURS_EXAMINED = 3
"""The busiest hours ahead that are examined minute by minute."""
PLAN_FRESH_S = 300.0
MAX_RANGE = timedelta(days=DAYS_BACK + DAYS_AHEAD)
EARLIEST, LATEST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
RAN_SHOWN = 50
"""Past executions of a range that are listed."""


@dataclass(frozen=True, slots=True)
class WeekPlan:
    """Fires of the hours ahead, of jobs that fire at most hourly and of the others."""

    begin_ms: int
    seldom: list[int]
    often: list[int]

    @property
    def every(self) -> list[int]:
        return [one + other for one, other in zip(self.seldom, self.often, strict=True)]


@dataclass(frozen=True, slots=True)
class RangeForm:
    """The form for a range, as it was filled in: with what fires in it, or with the error."""

    begin: str = ""
    end: str = ""
    chosen: tuple[datetime, datetime] | None = None
    ahead: Agenda | None = None
    ran: wire.Page[wire.Execution] | None = None
    everything: str = ""
    """The address of the list of all past executions of the range."""
    error: Invalid | None = None


class Calendar:
    """GET /calendar.

    `at` selects an hour to show minute by minute, `from` and `to` a range whose fires are listed, `view=agenda` the
    fires of the next day. Jobs that fire more often than hourly are left out without `frequent`.
    """

    def __init__(self, density: FireDensityCache, history: FireHistoryCache, clock: Clock | None = None) -> None:
        self._density, self._history = density, history
        self._clock = clock or SystemClock()
        self._plans: dict[int, tuple[float, WeekPlan]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def __call__(self, request: PageRequest) -> Response:
        database, tenant = request.context.database, request.caller.tenant
        frequent = bool(request.query("frequent"))
        if request.query("view") == "agenda":
            found = await agenda(database, tenant=tenant, frequent=frequent)
            return page("agenda.html", request.caller, agenda=found, frequent=frequent)
        loads = await self._density.loads(database, tenant=tenant)
        chosen = _hour(request.query("at"))
        asked = await _asked(request, frequent)
        values = await self._week(request, loads, frequent)
        return page(
            "calendar.html",
            request.caller,
            status=422 if asked.error else 200,
            chosen=chosen,
            asked=asked,
            frequent=frequent,
            **values,
            **await self._minutes(request, loads, chosen, frequent),
        )

    async def _week(self, request: PageRequest, loads: ScheduleLoads, frequent: bool) -> dict[str, Any]:
        """The heat map, what closes its hours and days, and the proposals to spread its crowded minutes."""
        database, tenant, zone = request.context.database, request.caller.tenant, request.caller.zone
        at = now()
        _, often = await calculated(loads.split, millis(at))
        hidden = frozenset() if frequent else frozenset(load.schedule_id for load in often.loads)
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            plan = await self._plan(loads, at, tenant=tenant)
            past = await self._history.hours(database, at, back=DAYS_BACK, tenant=tenant, hidden=hidden)
        days = days_shown(at, zone)
        closed = await closures(
            database,
            millis(days[0]),
            millis(days[-1] + timedelta(days=1)),
            [day.date() for day in days],
            tenant=tenant,
        )
        shown, exact = plan.every if frequent else plan.seldom, fire_calendar.is_counted(loads)
        return {
            "columns": columns(at, plan.begin_ms, shown, exact, past, zone, closed, frequent),
            "today": DAYS_BACK,
            "exact": exact,
            "levels": LEVELS,
            "crowded": CROWDED,
            "often": sum(load.jobs for load in often.loads),
            "busiest": _busiest(plan.begin_ms, shown),
            "closed": closed,
            "closed_blocks": blocks_of(closed.days),
            "proposals": await self._proposals(request, loads, plan),
        }

    async def _proposals(self, request: PageRequest, loads: ScheduleLoads, plan: WeekPlan) -> list[Any]:
        """How to spread the most crowded minutes of the busiest hours, of all jobs."""
        due = plan.every
        busiest = sorted(range(len(due)), key=lambda n: -due[n])[:HOURS_EXAMINED]
        hours = [plan.begin_ms + n * HOUR_MS for n in busiest if due[n]]
        crushes = [await calculated(fire_calendar.most_crowded, loads, hour) for hour in hours]
        return await fire_calendar.proposals(request.context.database, crushes, tenant=request.caller.tenant)

    async def _minutes(
        self, request: PageRequest, loads: ScheduleLoads, chosen: datetime | None, frequent: bool
    ) -> dict[str, Any]:
        """The minutes of the chosen hour."""
        if chosen is None:
            return {"minutes": None, "loads": []}
        if not frequent:
            loads, _ = await calculated(loads.split, millis(now()))
        found = await calculated(fire_calendar.most_crowded, loads, millis(chosen))
        examples = await fire_calendar.examples(request.context.database, found, tenant=request.caller.tenant)
        return {"minutes": found, "loads": examples}

    async def _plan(self, loads: ScheduleLoads, at: datetime, *, tenant: int) -> WeekPlan:
        begin_ms = millis(at) // HOUR_MS * HOUR_MS
        known = self._plans.get(tenant)
        if known is not None and known[1].begin_ms == begin_ms and self._clock.monotonic() - known[0] < PLAN_FRESH_S:
            return known[1]
        parts = await calculated(loads.split, millis(at))
        seldom, often = [await calculated(fire_calendar.planned, part, begin_ms, DAYS_AHEAD * 24) for part in parts]
        plan = WeekPlan(begin_ms, seldom, often)
        self._plans[tenant] = (self._clock.monotonic(), plan)
        return plan


async def _asked(request: PageRequest, frequent: bool) -> RangeForm:
    """The range of the address with its fires: planned ones, and executions of those that have passed."""
    begin, end = request.query("from"), request.query("to")
    if not begin and not end:
        return RangeForm()
    try:
        first, last = _range(begin, end, request.caller.zone)
    except Invalid as error:
        return RangeForm(begin, end, error=error)
    database, tenant, at = request.context.database, request.caller.tenant, now()
    ahead, ran, everything = None, None, ""
    if last > at:
        ahead = await agenda(database, tenant=tenant, frequent=frequent, begin=first, end=last)
    if first < at:
        text = spell(trigger="fire", since=stamp(first), until=stamp(min(last, at)))
        ran = await search.find_executions(database, text, tenant=tenant, limit=RAN_SHOWN)
        everything = link("/executions", q=text)
    return RangeForm(begin, end, (first, last), ahead, ran, everything)


def _range(begin: str, end: str, zone: str) -> tuple[datetime, datetime]:
    first, last = parse_time(begin, "/from", zone), parse_time(end, "/to", zone)
    if first is None or last is None:
        pointer = "/from" if first is None else "/to"
        raise invalid(pointer, "a range has a beginning and an end", hint="such as 2027-01-01T09:00")
    if not all(EARLIEST <= at <= LATEST for at in (first, last)):
        raise invalid("/from", "the range is too far away", hint=f"between {EARLIEST:%Y} and {LATEST:%Y}")
    if last <= first:
        raise invalid("/to", "the range ends before it begins", hint="exchange the two times")
    if last - first > MAX_RANGE:
        raise invalid("/to", f"the range is longer than {MAX_RANGE.days} days", hint="choose a shorter one")
    return first, last


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

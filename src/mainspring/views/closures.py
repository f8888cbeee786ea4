"""When fires are held back or left out: the hours of blackouts, and the days that calendars exclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS, Window
from mainspring.domain.schedule.budget import REQUEST_STEPS, TooCostly, spend, steps
from mainspring.domain.schedule.calendar import Blackout
from mainspring.domain.schedule.zone import day_number
from mainspring.store import blackouts, calendars
from mainspring.store.calendars import calendar_of
from mainspring.store.db import Database, database_now_ms
from mainspring.views.blackouts import as_blackout
from mainspring.views.fire_density import HOUR_MS

MAX_CALENDARS = 50
"""Calendars whose closed days are shown, by name."""


@dataclass(frozen=True, slots=True)
class BlackoutHours:
    """A blackout, and the hours in which it holds fires back, as the instants at which they begin."""

    blackout: wire.Blackout
    hours: frozenset[int]

    @property
    def holds_all_jobs(self) -> bool:
        return self.blackout.queue is None and self.blackout.job is None


@dataclass(frozen=True, slots=True)
class Closures:
    """Blackouts of a stretch of time, and for each of its days the calendars that exclude it."""

    blackouts: Sequence[BlackoutHours] = ()
    days: Mapping[date, Sequence[wire.Calendar]] = field(default_factory=dict)

    def at(self, hour_ms: int) -> list[BlackoutHours]:
        """The blackouts that hold fires of an hour back, those over all jobs first."""
        return sorted((b for b in self.blackouts if hour_ms in b.hours), key=lambda b: not b.holds_all_jobs)


async def closures(database: Database, begin_ms: int, end_ms: int, days: Sequence[date], *, tenant: int) -> Closures:
    """Blackouts between two instants, and the closed days among `days`."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await blackouts.list_blackouts(connection, tenant=tenant, limit=MAX_BLACKOUTS)
        known = await calendars.list_calendars(connection, tenant=tenant, limit=MAX_CALENDARS)
    windows = [row.window for row in rows]
    held = await calculated(_hours_of_all, windows, begin_ms, end_ms)
    found = [BlackoutHours(as_blackout(row, now_ms), hours) for row, hours in zip(rows, held, strict=True) if hours]
    return Closures(found, closed_days(known, days))


def closed_days(known: Sequence[wire.Calendar], days: Sequence[date]) -> dict[date, list[wire.Calendar]]:
    """The days on which jobs that follow one of these calendars do not fire, with those calendars."""
    found: dict[date, list[wire.Calendar]] = {}
    for calendar in known:
        opens = calendar_of(calendar.name, calendar.days)
        for day in days:
            if not opens.is_open(day_number(day.year, day.month, day.day)):
                found.setdefault(day, []).append(calendar)
    return found


def _hours_of_all(windows: Sequence[Window], begin_ms: int, end_ms: int) -> list[frozenset[int]]:
    with steps(REQUEST_STEPS):
        return [hours_held(window, begin_ms, end_ms) for window in windows]


def hours_held(window: Window, begin_ms: int, end_ms: int) -> frozenset[int]:
    """The hours that begin in `[begin_ms, end_ms)` and that a window touches; those found within the step budget."""
    begin_ms = begin_ms // HOUR_MS * HOUR_MS
    if isinstance(window, Blackout):
        return frozenset(_hours(max(begin_ms, window.start_ms), min(end_ms, window.end_ms)))
    held: set[int] = set()
    with suppress(TooCostly):
        at = window.begins.prev_before(begin_ms + 1)
        if at is None or at + window.lasts_ms <= begin_ms:
            at = window.begins.next_after(begin_ms - 1)
        while at is not None and at < end_ms:
            spend()
            until = at + window.lasts_ms
            held.update(_hours(max(begin_ms, at), min(end_ms, until)))
            marked_to = -(-until // HOUR_MS) * HOUR_MS
            # Of the windows that begin in marked hours, the last one reaches furthest.
            latest = window.begins.prev_before(marked_to)
            at = latest if latest is not None and latest > at else window.begins.next_after(marked_to - 1)
    return frozenset(held)


def _hours(start_ms: int, end_ms: int) -> range:
    return range(start_ms // HOUR_MS * HOUR_MS, end_ms, HOUR_MS) if start_ms < end_ms else range(0)


def blocks_of(days: Mapping[date, Sequence[wire.Calendar]]) -> list[tuple[wire.Calendar, list[tuple[date, date]]]]:
    """The closed days of each calendar as first and last day of each run of days."""
    by_name: dict[str, tuple[wire.Calendar, list[tuple[date, date]]]] = {}
    for day in sorted(days):
        for calendar in days[day]:
            runs = by_name.setdefault(calendar.name, (calendar, []))[1]
            if runs and runs[-1][1] == day - timedelta(days=1):
                runs[-1] = (runs[-1][0], day)
            else:
                runs.append((day, day))
    return [by_name[name] for name in sorted(by_name)]

"""Calendars and blackout windows as pure values, applied to schedules."""

from collections.abc import Iterable
from datetime import date
from functools import cached_property
from typing import Final, Literal

import msgspec

from mainspring.domain.schedule.cron import Cron, CronError, parse_cron
from mainspring.domain.schedule.recurrence import SEARCH_MS, Schedule
from mainspring.domain.schedule.zone import DAY_S, Zone, day_number

Roll = Literal["next", "previous"]

_SEARCH_DAYS: Final = SEARCH_MS // 1000 // DAY_S
# A fire without an open day this close is dropped: it would no longer be the same event.
_ROLL_DAYS: Final = 31
_MOST_JOINED: Final = 1000


class CalendarError(ValueError):
    """A calendar with a rule that cannot be read; `hint` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Calendar(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A named set of days, by date or by rule: those to leave out, or the only ones to keep.

    A rule is the three day fields of a cron expression: day of month, month, day of week. `25 12 *` is every
    25 December, `* * SAT,SUN` every weekend.
    """

    name: str
    dates: frozenset[date] = frozenset()
    rules: tuple[str, ...] = ()
    mode: Literal["exclude", "include"] = "exclude"

    def is_open(self, day: int) -> bool:
        """Whether schedules fire on a day, given in days since the epoch."""
        listed = day in self._days or any(day in rule.dates for rule in self._rules)
        return listed == (self.mode == "include")

    @cached_property
    def _days(self) -> frozenset[int]:
        return frozenset(day_number(when.year, when.month, when.day) for when in self.dates)

    @cached_property
    def _rules(self) -> list[Cron]:
        return [_read_rule(rule) for rule in self.rules]


def check_calendar(calendar: Calendar) -> None:
    """Raise `CalendarError` for the first rule that cannot be read."""
    for rule in calendar.rules:
        _read_rule(rule)


def on_calendar(schedule: Schedule, calendar: Calendar, zone: Zone, roll: Roll | None = None) -> Schedule:
    """The schedule with its fires on closed days dropped, or moved to the same wall time of an open day."""
    return OpenDays(schedule, calendar, zone) if roll is None else Rolled(schedule, calendar, zone, roll)


class OpenDays(Schedule):
    """The fires of a schedule whose date, in a zone, is open."""

    __slots__ = ("_base", "_calendar", "_zone")

    def __init__(self, base: Schedule, calendar: Calendar, zone: Zone) -> None:
        self._base, self._calendar, self._zone = base, calendar, zone

    def next_after(self, ms: int) -> int | None:
        fire = self._base.next_after(ms)
        while fire is not None and fire <= ms + SEARCH_MS:
            day = day_at(self._zone, fire)
            if self._calendar.is_open(day):
                return fire
            fire = self._base.next_after(max(fire, start_of(self._zone, day + 1) - 1))
        return None

    def prev_before(self, ms: int) -> int | None:
        fire = self._base.prev_before(ms)
        while fire is not None and fire >= ms - SEARCH_MS:
            day = day_at(self._zone, fire)
            if self._calendar.is_open(day):
                return fire
            fire = self._base.prev_before(min(fire, start_of(self._zone, day)))
        return None

    def describe(self) -> str:
        return f"{self._base.describe()}, {_words(self._calendar)}"

    def parts(self) -> tuple[Schedule, ...]:
        return self._base.parts()


class Rolled(Schedule):
    """Fires on closed days moved to the next or previous open day; those that meet there become one.

    An open day and the closed ones that roll onto it are a *group*: groups follow one another like days, so
    the next fire is in the group of the moment asked about, or in that of the next fire of the schedule.
    """

    __slots__ = ("_base", "_calendar", "_roll", "_zone")

    def __init__(self, base: Schedule, calendar: Calendar, zone: Zone, roll: Roll) -> None:
        self._base, self._calendar, self._zone, self._roll = base, calendar, zone, roll

    def next_after(self, ms: int) -> int | None:
        target = self._target(day_at(self._zone, ms), 1)
        while target is not None:
            later = [fire for fire in self._group(target) if fire > ms]
            if later:
                return later[0]
            fire = self._base.next_after(start_of(self._zone, self._span(target)[1] + 1) - 1)
            if fire is None or fire > ms + SEARCH_MS:
                return None
            target = self._target(day_at(self._zone, fire), 1)
        return None

    def prev_before(self, ms: int) -> int | None:
        target = self._target(day_at(self._zone, ms), -1)
        while target is not None:
            earlier = [fire for fire in self._group(target) if fire < ms]
            if earlier:
                return earlier[-1]
            fire = self._base.prev_before(start_of(self._zone, self._span(target)[0]))
            if fire is None or fire < ms - SEARCH_MS:
                return None
            target = self._target(day_at(self._zone, fire), -1)
        return None

    def describe(self) -> str:
        return f"{self._base.describe()}, {_words(self._calendar)}, moved to the {self._roll} open day"

    def parts(self) -> tuple[Schedule, ...]:
        return self._base.parts()

    def _target(self, day: int, onwards: int) -> int | None:
        """The open day that fires on `day` belong to; if they are dropped, the first one `onwards` (1 or -1)."""
        found = self._open_day(day, 1 if self._roll == "next" else -1, _ROLL_DAYS)
        return found if found is not None else self._open_day(day, onwards, _SEARCH_DAYS)

    def _open_day(self, day: int, step: int, most: int) -> int | None:
        return next((to for to in range(day, day + step * most, step) if self._calendar.is_open(to)), None)

    def _span(self, target: int) -> tuple[int, int]:
        """First and last day of the group of an open day."""
        if self._roll == "next":
            before = self._open_day(target - 1, -1, _ROLL_DAYS)
            return target - _ROLL_DAYS + 1 if before is None else before + 1, target
        after = self._open_day(target + 1, 1, _ROLL_DAYS)
        return target, target + _ROLL_DAYS - 1 if after is None else after - 1

    def _group(self, target: int) -> list[int]:
        first, last = self._span(target)
        fires: set[int] = set()
        low, high = start_of(self._zone, first) - 1, start_of(self._zone, last + 1) - 1
        fire = self._base.next_after(low)
        while fire is not None and fire <= high:
            fires.add(self._moved(fire, target))
            fire = self._base.next_after(fire)
        return sorted(fires)

    def _moved(self, fire: int, target: int) -> int:
        wall = self._zone.wall_at(fire // 1000)
        if wall // DAY_S == target:
            return fire
        moved = target * DAY_S + wall % DAY_S
        instants = self._zone.instants_of(moved)
        return (instants[0] if instants else self._zone.first_after_gap(moved)) * 1000 + fire % 1000


class Blackout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A window `[start_ms, end_ms)` in which nothing fires."""

    start_ms: int
    end_ms: int


class RecurringBlackout(msgspec.Struct, frozen=True):
    """A window of `lasts_ms` from each fire of a schedule on."""

    begins: Schedule
    lasts_ms: int


def blackout_until(windows: Iterable[Blackout | RecurringBlackout], ms: int) -> int | None:
    """The end of the windows at an instant and of those that adjoin them; None outside any window."""
    known, until = tuple(windows), ms
    # Alternating windows may never end: after this many the caller checks again at the end found so far.
    for _ in range(_MOST_JOINED):
        later = max((_end_at(window, until) for window in known), default=until)
        if later == until:
            break
        until = later
    return until if until > ms else None


def in_blackout(windows: Iterable[Blackout | RecurringBlackout], ms: int) -> bool:
    """Whether an instant lies in one of the windows."""
    return any(_end_at(window, ms) > ms for window in windows)


def day_at(zone: Zone, ms: int) -> int:
    """The date of an instant in a zone, in days since the epoch."""
    return zone.wall_at(ms // 1000) // DAY_S


def start_of(zone: Zone, day: int) -> int:
    """The first instant of a date; of the date after it if the zone skipped it."""
    wall = day * DAY_S
    instants = zone.instants_of(wall)
    return (instants[0] if instants else zone.first_after_gap(wall)) * 1000


def _end_at(window: Blackout | RecurringBlackout, ms: int) -> int:
    if isinstance(window, Blackout):
        return window.end_ms if window.start_ms <= ms < window.end_ms else ms
    begun = window.begins.prev_before(ms + 1)
    return ms if begun is None else max(ms, begun + window.lasts_ms)


def rule_text(rule: str) -> str:
    """A rule in normal form: the same days give the same text."""
    return " ".join(_read_rule(rule).text.split()[-3:])


def _read_rule(rule: str) -> Cron:
    try:
        if len(rule.split()) != 3:
            raise CalendarError(f"{rule!r} has not three fields", "write day-of-month month day-of-week: 25 12 *")
        return parse_cron(f"0 0 {rule.strip()}")
    except CronError as error:
        raise CalendarError(str(error), error.hint) from None


def _words(calendar: Calendar) -> str:
    return f"{'not' if calendar.mode == 'exclude' else 'only'} on days of the calendar {calendar.name}"

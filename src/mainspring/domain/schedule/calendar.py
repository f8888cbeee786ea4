"""Calendars and blackout windows as pure values, applied to schedules."""

from collections.abc import Iterable, Iterator
from datetime import date
from functools import cached_property
from typing import Final, Literal

import msgspec

from mainspring.domain.schedule.budget import TooCostly, spend
from mainspring.domain.schedule.cron import Cron, CronError, parse_cron
from mainspring.domain.schedule.day_set import DaySet
from mainspring.domain.schedule.recurrence import SEARCH_MS, Schedule
from mainspring.domain.schedule.zone import DAY_S, Zone, day_number

Roll = Literal["next", "previous"]

_SEARCH_DAYS: Final = SEARCH_MS // 1000 // DAY_S
# A fire without an open day this close is dropped: it would no longer be the same event.
_ROLL_DAYS: Final = 31
_MOST_JOINED: Final = 1000
_MOST_ASKED: Final = 4000
# To find the date of a fire, and where it begins.
_DAY_STEPS: Final = 6


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
        return (day in self._days) == (self.mode == "include")

    def next_open(self, day: int, last: int) -> int | None:
        """The first open day in `[day, last]`."""
        return self._days.next_day(day, last, listed=self.mode == "include")

    def prev_open(self, day: int, earliest: int) -> int | None:
        """The last open day in `[earliest, day]`."""
        return self._days.prev_day(day, earliest, listed=self.mode == "include")

    def next_closed(self, day: int, last: int) -> int | None:
        """The first closed day in `[day, last]`."""
        return self._days.next_day(day, last, listed=self.mode == "exclude")

    @cached_property
    def _days(self) -> DaySet:
        days = (day_number(when.year, when.month, when.day) for when in self.dates)
        return DaySet(days, [_read_rule(rule).dates for rule in self.rules])


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
            spend(_DAY_STEPS)
            day = day_at(self._zone, fire)
            if self._calendar.is_open(day):
                return fire
            following = self._calendar.next_open(day + 1, day + _SEARCH_DAYS)
            if following is None:
                return None
            fire = self._base.next_after(max(fire, start_of(self._zone, following) - 1))
        return None

    def prev_before(self, ms: int) -> int | None:
        fire = self._base.prev_before(ms)
        while fire is not None and fire >= ms - SEARCH_MS:
            spend(_DAY_STEPS)
            day = day_at(self._zone, fire)
            if self._calendar.is_open(day):
                return fire
            before = self._calendar.prev_open(day - 1, day - _SEARCH_DAYS)
            if before is None:
                return None
            fire = self._base.prev_before(min(fire, start_of(self._zone, before + 1)))
        return None

    def count_between(self, start_ms: int, end_ms: int) -> int:
        """Counts the fires of each run of open days at once."""
        if end_ms <= start_ms:
            return 0
        found, last = 0, day_at(self._zone, end_ms)
        day = self._calendar.next_open(day_at(self._zone, start_ms + 1), last)
        while day is not None:
            spend(_DAY_STEPS)
            closed = self._calendar.next_closed(day, last)
            low = max(start_ms, start_of(self._zone, day) - 1)
            high = end_ms if closed is None else min(end_ms, start_of(self._zone, closed) - 1)
            found += self._base.count_between(low, high) if low < high else 0
            day = None if closed is None else self._calendar.next_open(closed, last)
        return found

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
            spend(_DAY_STEPS)
            first, last = self._span(target)
            found = self._first_after(target, first, last, ms)
            if found is not None:
                return found
            fire = self._base.next_after(start_of(self._zone, last + 1) - 1)
            if fire is None or fire > ms + SEARCH_MS:
                return None
            target = self._target(day_at(self._zone, fire), 1)
        return None

    def prev_before(self, ms: int) -> int | None:
        target = self._target(day_at(self._zone, ms), -1)
        while target is not None:
            spend(_DAY_STEPS)
            first, last = self._span(target)
            found = self._last_before(target, first, last, ms)
            if found is not None:
                return found
            fire = self._base.prev_before(start_of(self._zone, first))
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
        if step > 0:
            return self._calendar.next_open(day, day + most - 1)
        return self._calendar.prev_open(day, day - most + 1)

    def _span(self, target: int) -> tuple[int, int]:
        """First and last day of the group of an open day."""
        if self._roll == "next":
            before = self._open_day(target - 1, -1, _ROLL_DAYS)
            return target - _ROLL_DAYS + 1 if before is None else before + 1, target
        after = self._open_day(target + 1, 1, _ROLL_DAYS)
        return target, target + _ROLL_DAYS - 1 if after is None else after - 1

    def _first_after(self, target: int, first: int, last: int, ms: int) -> int | None:
        """The first fire of a group after `ms`: the earliest of what its days contribute, each asked once."""
        begin, end = start_of(self._zone, target), start_of(self._zone, target + 1)
        fire = self._base.next_after(max(ms, begin - 1))
        found = [fire] if fire is not None and fire < end else []
        earliest = 0 if ms < begin else self._first_wall_after(ms) - target * DAY_S
        for low, high, midnight in self._stretches(first, last, target):
            # Within a stretch moved fires keep their order, so the first that is late enough is the earliest.
            fire = self._base.next_after(max(low, midnight + earliest) * 1000 - 1)
            while fire is not None and fire < high * 1000:
                spend()
                moved = self._moved(fire, target)
                if moved > ms:
                    found.append(moved)
                    break
                fire = self._base.next_after(fire)
        return min(found, default=None)

    def _last_before(self, target: int, first: int, last: int, ms: int) -> int | None:
        begin, end = start_of(self._zone, target), start_of(self._zone, target + 1)
        fire = self._base.prev_before(min(ms, end))
        found = [fire] if fire is not None and fire >= begin else []
        latest = DAY_S - 1 if ms > end else self._last_wall_before(ms) - target * DAY_S
        for low, high, midnight in self._stretches(first, last, target):
            fire = self._base.prev_before(min(high, midnight + latest + 1) * 1000)
            while fire is not None and fire >= low * 1000:
                spend()
                moved = self._moved(fire, target)
                if moved < ms:
                    found.append(moved)
                    break
                fire = self._base.prev_before(fire)
        return max(found, default=None)

    def _stretches(self, first: int, last: int, target: int) -> Iterator[tuple[int, int, int]]:
        """The closed days of a group, cut at clock changes: `[low, high)` in seconds, and where midnight would be."""
        for day in range(first, last + 1):
            if day == target:
                continue
            spend(_DAY_STEPS)
            begin, end = start_of(self._zone, day) // 1000, start_of(self._zone, day + 1) // 1000
            for segment in self._zone.segments_between(begin, end - 1) if begin < end else ():
                yield max(begin, segment.start), min(end, segment.end), day * DAY_S - segment.offset

    def _first_wall_after(self, ms: int) -> int:
        """The first wall time that may be moved to an instant after `ms`: repeated ones count the first time."""
        segment = self._zone.segment_at(ms // 1000)
        wall = ms // 1000 + segment.offset
        return segment.repeat_until if segment.repeat_from <= wall < segment.repeat_until else wall

    def _last_wall_before(self, ms: int) -> int:
        """The last wall time that may be moved to an instant before `ms`."""
        segment = self._zone.segment_at((ms - 1) // 1000)
        wall = (ms - 1) // 1000 + segment.offset
        return segment.repeat_until - 1 if segment.repeat_from <= wall < segment.repeat_until else wall

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
    for _ in range(min(_MOST_JOINED, 1 + _MOST_ASKED // max(1, len(known)))):
        later = max((_end_at(window, until) for window in known), default=until)
        if later == until:
            break
        until = later
    return until if until > ms else None


def next_start(window: Blackout | RecurringBlackout, ms: int) -> int | None:
    """When a window begins the next time after an instant."""
    if isinstance(window, Blackout):
        return window.start_ms if window.start_ms > ms else None
    try:
        return window.begins.next_after(ms)
    except TooCostly:
        return None


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
    try:
        begun = window.begins.prev_before(ms + 1)
    except TooCostly:  # checked when it was created; what costs too much since then holds nothing
        return ms
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

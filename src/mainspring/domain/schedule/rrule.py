"""Recurrence rules of RFC 5545, matched on wall times.

Most rules are a set of days and a set of times of day: the next match is found by bit arithmetic, however far the start
lies back. Two kinds are walked, with every step counted against the budget: rules whose BYSETPOS chooses among the
days of a week, month or year, and intervals of hours, minutes or seconds that do not divide a day.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from mainspring.domain.schedule.budget import spend
from mainspring.domain.schedule.cron_fields import lowest
from mainspring.domain.schedule.rrule_days import HOURLY, LAST_YEAR, MONTHLY, WEEKLY, YEARLY, RuleDays
from mainspring.domain.schedule.rrule_text import Rule
from mainspring.domain.schedule.rrule_times import (
    UNIT_S,
    TimeSets,
    is_even,
    offsets_in_period,
    places,
    times_of_day,
)
from mainspring.domain.schedule.zone import DAY_S, date_of, day_number

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_SEARCH_S: Final = 50 * 366 * DAY_S
LAST_WALL: Final = day_number(LAST_YEAR, 12, 31) * DAY_S


class Matches(Protocol):
    """The wall times of a rule, without its exceptions and its end."""

    def at_or_after(self, wall: int) -> int | None: ...
    def at_or_before(self, wall: int, earliest: int) -> int | None:
        """The last match in `[earliest, wall]`."""

    def nth_after(self, wall: int, number: int) -> int | None:
        """The match with `number` others from `wall` on before it; before `wall` if there are none, None if too far."""

    def count(self, low: int, high: int) -> int:
        """How many matches are in `[low, high)`."""


class RulePattern:
    """The wall times of a rule from `start` on, without `without` and the whole `days_off`."""

    __slots__ = ("_days_off", "_end", "_matches", "_rule", "_start", "_without", "every_hour", "fixed")

    def __init__(self, rule: Rule, start: int, without: frozenset[int], days_off: frozenset[int]) -> None:
        self._rule, self._start, self._without, self._days_off = rule, start, without, days_off
        self.fixed = rule.frequency < HOURLY
        self.every_hour = not self.fixed and rule.interval == 1 and "byhour" not in rule.by
        self._matches = _matches(rule, start)
        self._end: int | None = None

    def next_wall(self, wall: int) -> int | None:
        wall = max(wall, self._start)
        last = min(self._last(), wall + _SEARCH_S)
        found = self._matches.at_or_after(wall) if wall <= last else None
        while found is not None and found <= last:
            if found // DAY_S in self._days_off:
                wall = (found // DAY_S + 1) * DAY_S
            elif found in self._without:
                wall = found + 1
            else:
                return found
            spend(2)
            found = self._matches.at_or_after(wall) if wall <= last else None
        return None

    def prev_wall(self, wall: int) -> int | None:
        wall = min(wall, self._last())
        earliest = max(self._start, wall - _SEARCH_S)
        found = self._matches.at_or_before(wall, earliest) if wall >= earliest else None
        while found is not None:
            if found // DAY_S in self._days_off:
                wall = found // DAY_S * DAY_S - 1
            elif found in self._without:
                wall = found - 1
            else:
                return found
            spend(2)
            found = self._matches.at_or_before(wall, earliest) if wall >= earliest else None
        return None

    def count_walls(self, low: int, high: int) -> int:
        low, high = max(low, self._start), min(high, self._last() + 1)
        if low >= high:
            return 0
        found = self._matches.count(low, high)
        for day in self._days_off:
            spend()
            start, end = max(low, day * DAY_S), min(high, (day + 1) * DAY_S)
            found -= self._matches.count(start, end) if start < end else 0
        for wall in self._without:
            spend()
            if low <= wall < high and wall // DAY_S not in self._days_off:
                found -= self._matches.at_or_after(wall) == wall
        return found

    def describe(self) -> str:
        return self._rule.describe(_EPOCH + timedelta(seconds=self._start))

    def _last(self) -> int:
        """The last wall time that can match: UNTIL, or that of the COUNT-th match."""
        if self._end is None:
            end = self._rule.until
            if self._rule.most is not None:
                end = self._matches.nth_after(self._start, self._rule.most - 1)
            self._end = LAST_WALL if end is None else min(end, LAST_WALL)
        return self._end


class DayTimes:
    """All combinations of some days and some times of day."""

    __slots__ = ("_days", "_listed", "_sets", "_size", "_times")

    def __init__(self, days: RuleDays, sets: TimeSets, listed: list[int] | None) -> None:
        self._days, self._sets, self._listed = days, sets, listed
        self._times = sets.compiled()
        self._size = sets.size if listed is None else len(listed)

    def at_or_after(self, wall: int) -> int | None:
        if not self._size:
            return None
        day, time = divmod(wall, DAY_S)
        if time > self._nth_time(self._size - 1):
            day, time = day + 1, 0
        found = self._days.at_or_after(day) if day * DAY_S <= LAST_WALL else None
        if found is None:
            return None
        return found * DAY_S + (self._time_from(time) if found == day else self._nth_time(0))

    def at_or_before(self, wall: int, earliest: int) -> int | None:
        if not self._size:
            return None
        day, time = divmod(wall, DAY_S)
        if time < self._nth_time(0):
            day, time = day - 1, DAY_S - 1
        last = self._days.at_or_before(day, earliest // DAY_S)
        if last is None:
            return None
        found = last * DAY_S + (self._time_upto(time) if last == day else self._nth_time(self._size - 1))
        return found if found >= earliest else None

    def nth_after(self, wall: int, number: int) -> int | None:
        day, time = divmod(wall, DAY_S)
        if not self._size or self._days.at_or_after(day) is None:
            return wall - 1
        if day in self._days:
            number += self._count_before(time)
        found = self._days.nth_after(day, number // self._size)
        return None if found is None else found * DAY_S + self._nth_time(number % self._size)

    def count(self, low: int, high: int) -> int:
        if not self._size:
            return 0
        (first, start), (last, stop) = divmod(low, DAY_S), divmod(high, DAY_S)
        found = self._days.count(first, last) * self._size
        found -= self._count_before(start) if start and first in self._days else 0
        return found + (self._count_before(stop) if stop and last in self._days else 0)

    def _time_from(self, time: int) -> int:
        if self._listed is not None:
            return self._listed[bisect_left(self._listed, time)]
        assert self._times is not None
        return self._times.at_or_after(time)

    def _time_upto(self, time: int) -> int:
        if self._listed is not None:
            return self._listed[bisect_right(self._listed, time) - 1]
        assert self._times is not None
        return self._times.at_or_before(time)

    def _nth_time(self, number: int) -> int:
        if self._listed is not None:
            return self._listed[number]
        assert self._times is not None
        ends = {0: self._times.first, self._size - 1: self._times.last}
        return ends[number] if number in ends else self._sets.nth(number)

    def _count_before(self, time: int) -> int:
        if self._listed is not None:
            return bisect_left(self._listed, time)
        assert self._times is not None
        return self._times.count_before(time)


class _Walked:
    """Matches that are counted one by one."""

    __slots__ = ()

    def at_or_after(self, wall: int) -> int | None:
        raise NotImplementedError

    def nth_after(self, wall: int, number: int) -> int | None:
        found = self.at_or_after(wall)
        if found is None:
            return wall - 1
        while number and found is not None:
            spend()
            found, number = self.at_or_after(found + 1), number - 1
        return found

    def count(self, low: int, high: int) -> int:
        number, found = 0, self.at_or_after(low)
        while found is not None and found < high:
            spend()
            number, found = number + 1, self.at_or_after(found + 1)
        return number


class ChosenDays(_Walked):
    """The matches that BYSETPOS chooses in each week, month or year."""

    __slots__ = ("_days", "_first", "_positions", "_rule", "_sets", "_start")

    def __init__(self, rule: Rule, days: RuleDays, sets: TimeSets, start: int) -> None:
        self._rule, self._days, self._sets, self._start = rule, days, sets, start
        self._positions: tuple[int, ...] = rule.by["bysetpos"]
        self._first = date_of(start // DAY_S)

    def at_or_after(self, wall: int) -> int | None:
        number, until = self._period_of(wall // DAY_S), wall + _SEARCH_S
        while True:
            low, high = self._span(number)
            if low * DAY_S > min(until, LAST_WALL):
                return None
            later = [found for found in self._chosen(low, high) if found >= wall]
            if later:
                return later[0]
            number += 1

    def at_or_before(self, wall: int, earliest: int) -> int | None:
        number = self._period_of(wall // DAY_S)
        while number >= 0:
            low, high = self._span(number)
            found = [match for match in self._chosen(low, high) if earliest <= match <= wall]
            if found:
                return found[-1]
            if low * DAY_S <= earliest:
                return None
            number -= 1
        return None

    def _chosen(self, low: int, high: int) -> list[int]:
        spend(4 + (high - low) // 4 + len(self._positions))
        days, size = self._days.within(low, high), self._sets.size
        chosen = places(self._positions, len(days) * size)
        return [days[place // size] * DAY_S + self._sets.nth(place % size) for place in chosen]

    def _period_of(self, day: int) -> int:
        """The number of the period with `day`, or of the last one before it."""
        interval = self._rule.interval
        if self._rule.frequency == WEEKLY:
            return max(0, (day - self._week_start()) // 7 // interval)
        when = date_of(day)
        if self._rule.frequency == MONTHLY:
            return max(0, (when.year * 12 + when.month - self._first.year * 12 - self._first.month) // interval)
        return max(0, (when.year - self._first.year) // interval)

    def _span(self, number: int) -> tuple[int, int]:
        """First day of a period, and the day after its last. The first week begins with the start of the rule."""
        offset = number * self._rule.interval
        if self._rule.frequency == WEEKLY:
            low = self._week_start() + offset * 7
            return max(low, self._start // DAY_S), low + 7
        months = self._first.year * 12 + (self._first.month - 1 if self._rule.frequency == MONTHLY else 0)
        size = 1 if self._rule.frequency == MONTHLY else 12
        low = months + offset * size
        return _month_start(low), _month_start(low + size)

    def _week_start(self) -> int:
        return self._start // DAY_S - (self._first.weekday() - self._rule.week_start) % 7


class Steps(_Walked):
    """Every n-th hour, minute or second, if its day and time are among those that the rule names."""

    __slots__ = ("_all_days", "_days", "_every_period", "_offsets", "_origin", "_sets", "_step", "_unit")

    def __init__(self, rule: Rule, days: RuleDays, sets: TimeSets, start: int, *, all_days: bool) -> None:
        self._unit = UNIT_S[rule.frequency]
        self._step = rule.interval * self._unit
        self._origin = start - start % self._unit
        self._days, self._sets, self._all_days = days, sets, all_days
        self._offsets = offsets_in_period(rule.frequency, sets, rule.by.get("bysetpos", ()))
        self._every_period = bool(self._offsets) and all_days and sets.names_all(self._unit)

    def at_or_after(self, wall: int) -> int | None:
        if not self._offsets or not self._sets.size:
            return None
        until = min(wall + _SEARCH_S, LAST_WALL)
        at = self._origin + (wall - self._origin) // self._step * self._step
        while at <= until:
            spend()
            later = self._blocked_until(at)
            if later is None:
                place = bisect_left(self._offsets, wall - at)
                if place < len(self._offsets):
                    return at + self._offsets[place]
                at += self._step
            else:
                at -= (at - later) // self._step * self._step
        return None

    def at_or_before(self, wall: int, earliest: int) -> int | None:
        """Searched farther and farther back, then by halving."""
        reach, found = 1, self.at_or_after(wall)
        while found is None or found > wall:
            if wall - reach < earliest:
                return None
            reach *= 16
            found = self.at_or_after(max(wall - reach, earliest))
        high = wall + 1
        while high - found > 1:
            spend()
            middle = (found + high) // 2
            later = self.at_or_after(middle)
            if later is None or later > wall:
                high = middle
            else:
                found = later
        return found

    def nth_after(self, wall: int, number: int) -> int | None:
        if not self._every_period:
            return super().nth_after(wall, number)
        begun = (wall - self._origin) // self._step
        number += bisect_left(self._offsets, wall - self._origin - begun * self._step)
        periods, place = divmod(number, len(self._offsets))
        return self._origin + (begun + periods) * self._step + self._offsets[place]

    def _blocked_until(self, at: int) -> int | None:
        """From when on a period that begins `at` or later may match; None if this one does."""
        day, time = divmod(at, DAY_S)
        if not self._all_days:
            open_day = self._days.at_or_after(day)
            if open_day != day:
                return LAST_WALL + 1 if open_day is None else open_day * DAY_S
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        if not self._sets.hours >> hour & 1:
            return day * DAY_S + _following(self._sets.hours, hour, 24) * 3600
        if self._unit <= 60 and not self._sets.minutes >> minute & 1:
            return at - rest + _following(self._sets.minutes, minute, 60) * 60
        if self._unit == 1 and not self._sets.seconds >> second & 1:
            return at - second + _following(self._sets.seconds, second, 60)
        return None


def _matches(rule: Rule, start: int) -> Matches:
    parts = rule.explicit(_EPOCH + timedelta(seconds=start))
    days, sets = RuleDays(rule, parts, start // DAY_S), TimeSets(parts)
    positions = rule.by.get("bysetpos", ())
    if rule.frequency < HOURLY:
        if positions and rule.frequency in (YEARLY, MONTHLY, WEEKLY):
            return ChosenDays(rule, days, sets, start)
        return DayTimes(days, sets, times_of_day(rule.frequency, sets, positions))
    unit = UNIT_S[rule.frequency]
    step = rule.interval * unit
    sets.leave_steps(unit, step, start - start % unit)
    if is_even(step) and not positions:
        return DayTimes(days, sets, None)
    all_days = not rule.by.keys() & {"bymonth", "bymonthday", "byyearday", "byweekday"}
    return Steps(rule, days, sets, start, all_days=all_days)


def _following(bits: int, value: int, size: int) -> int:
    """The next value after `value`; `size` if there is none."""
    rest = bits >> value + 1
    return value + 1 + lowest(rest) if rest else size


def _month_start(months: int) -> int:
    year, month = divmod(months, 12)
    return day_number(year, month + 1) if year <= LAST_YEAR else LAST_WALL // DAY_S + 1

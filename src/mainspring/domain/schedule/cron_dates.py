"""The days that a cron expression names, as bit sets of a month."""

from datetime import date
from typing import Final

from mainspring.domain.schedule.cron_fields import (
    ALL_DAYS,
    ALL_MONTHS,
    ALL_WEEKDAYS,
    SATURDAY,
    Field,
    LastDay,
    NthWeekday,
    Special,
    highest,
    lowest,
    month_length,
)

SEARCH_YEARS: Final = 50
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_DAY


class Dates:
    """Days of the month and of the week, and months; days are counted from the epoch.

    Expressions that differ in their times of day share it, and with it the day found last.
    """

    __slots__ = ("_every_day", "_found", "_month_days", "_plain_days", "_sought", "_week", "_weekly",
                 "day_specials", "days", "fields", "months", "need_both", "starred", "weekday_specials",
                 "weekdays")  # fmt: skip

    def __init__(self, day: Field, month: Field, weekday: Field, *, day_and: bool) -> None:
        self.fields = (day, month, weekday)
        self.starred = day.starred or weekday.starred
        self.need_both = both = day_and or self.starred
        self.days, self.months, self.weekdays = day.bits, month.bits, weekday.bits
        self.day_specials, self.weekday_specials = day.special, weekday.special
        self._plain_days = not (day.special or weekday.special)
        # The week repeated over a month's length: shifted by the weekday of the 1st it is a set of days.
        self._week = weekday.bits * 0b1_0000001_0000001_0000001_0000001_0000001
        any_day, any_weekday = day.bits == ALL_DAYS, weekday.bits == ALL_WEEKDAYS
        every_date = any_day and any_weekday if both else any_day or any_weekday
        self._every_day = every_date and month.bits == ALL_MONTHS
        self._weekly = any_day and both and self._plain_days and month.bits == ALL_MONTHS
        self._month_days: dict[int, int] = {}
        self._sought, self._found = 0, -1  # no day from the first up to the second matches, but the second does

    def __contains__(self, day: int) -> bool:
        if self._every_day:
            return True
        if self._weekly:
            return bool(self.weekdays >> (day + 4) % 7 & 1)
        when = date.fromordinal(day + _EPOCH_DAY)
        if not self.months >> when.month & 1:
            return False
        if self._plain_days:
            on_day, on_weekday = self.days >> when.day & 1, self.weekdays >> (day + 4) % 7 & 1
            return bool(on_day & on_weekday if self.need_both else on_day | on_weekday)
        return bool(self._days_in(day - when.day + 1, month_length(when.year, when.month)) >> when.day & 1)

    def at_or_after(self, day: int) -> int | None:
        if self._every_day:
            return day
        if self._weekly:
            return day + lowest(self._week >> (day + 4) % 7)
        if self._sought <= day <= self._found:
            return self._found
        found = self._seek(day)
        if found is not None:
            self._sought, self._found = day, found
        return found

    def at_or_before(self, day: int) -> int | None:
        when = date.fromordinal(day + _EPOCH_DAY)
        year, month, first = when.year, when.month, day - when.day + 1
        behind = (2 << when.day) - 1
        for _ in range(SEARCH_YEARS * 12 + 1):
            if self.months >> month & 1:
                days = self._days_in(first, month_length(year, month)) & behind
                if days:
                    return first + highest(days) - 1
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            behind, first = -1, first - month_length(year, month)
        return None

    def count(self, start: int, end: int) -> int:
        """How many days in `[start, end)` match."""
        if self._every_day or end <= start:
            return end - start
        when = date.fromordinal(start + _EPOCH_DAY)
        year, month, first = when.year, when.month, start - when.day + 1
        found = 0
        while first < end:
            length = month_length(year, month)
            if self.months >> month & 1:
                days = self._days_in(first, length) >> max(start - first + 1, 0)
                if first + length > end:
                    days &= (1 << end - max(first - 1, start)) - 1
                found += days.bit_count()
            first += length
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return found

    def in_month(self, year: int, month: int, first: int) -> int:
        """The matching days of a month that begins on day number `first`, bit n for the n-th."""
        return self._days_in(first, month_length(year, month)) if self.months >> month & 1 else 0

    def _seek(self, day: int) -> int | None:
        if day > _LAST_DAY:
            return None
        when = date.fromordinal(day + _EPOCH_DAY)
        year, month, first = when.year, when.month, day - when.day + 1
        ahead = -1 << when.day
        for _ in range(SEARCH_YEARS * 12 + 1):
            length = month_length(year, month)
            if self.months >> month & 1:
                days = self._days_in(first, length) & ahead
                if days:
                    return first + lowest(days) - 1
            ahead, first = -1, first + length
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _days_in(self, first: int, length: int) -> int:
        """Matching days of the month that begins on day number `first`, bit n for the n-th."""
        weekday = (first + 4) % 7
        # There are 28 kinds of months: four lengths, beginning on any weekday.
        kind = weekday << 5 | length
        days = self._month_days.get(kind)
        if days is None:
            by_day, by_weekday = self.days, self._week >> weekday << 1
            for special in self.day_specials:
                by_day |= _special_day(special, weekday, length)
            for special in self.weekday_specials:
                by_weekday |= _special_day(special, weekday, length)
            days = by_day & by_weekday if self.need_both else by_day | by_weekday
            days = self._month_days[kind] = days & (2 << length) - 2
        return days


def _special_day(special: Special, weekday_of_1st: int, length: int) -> int:
    """The day that a rule names in a month that begins on a weekday (0 is Sunday), as a bit; 0 if none."""
    if isinstance(special, LastDay):
        day = length - special.before
    elif isinstance(special, NthWeekday):
        day = 1 + (special.weekday - weekday_of_1st) % 7
        day += 7 * ((length - day) // 7 if special.number is None else special.number - 1)
    else:
        day = length if special.day is None else special.day
        if day <= length:
            weekday = (weekday_of_1st + day - 1) % 7
            if weekday == SATURDAY:
                day += -1 if day > 1 else 2
            elif weekday == 0:
                day += 1 if day < length else -2
    return 1 << day if 1 <= day <= length else 0

"""The days of a recurrence rule, as bit sets of a year: bit n is the day n after 1 January."""

from datetime import date
from typing import Any, Final

from mainspring.domain.schedule.budget import spend
from mainspring.domain.schedule.cron_fields import highest, lowest, month_length
from mainspring.domain.schedule.rrule_text import Rule
from mainspring.domain.schedule.zone import date_of, day_number

YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY = range(7)
SEARCH_YEARS: Final = 51
LAST_YEAR: Final = 9999
# A rule whose COUNT reaches further than this has no end.
_COUNTED_YEARS: Final = 400
_YEAR_STEPS: Final = 2
_WEEKS: Final = sum(1 << 7 * week for week in range(54))


class RuleDays:
    """The days that the BY parts of a rule name, in the periods that its interval leaves."""

    __slots__ = ("_first", "_interval", "_kept", "_parts", "_rule", "_week_first")

    def __init__(self, rule: Rule, parts: dict[str, Any], first_day: int) -> None:
        self._rule, self._parts = rule, parts
        self._first = date_of(first_day)
        # An hourly or finer rule counts its interval in hours, minutes or seconds: all days may have some.
        self._interval = rule.interval if rule.frequency <= DAILY else 1
        self._week_first = first_day - (self._first.weekday() - rule.week_start) % 7
        self._kept: dict[tuple[int, int, int], int] = {}

    def __contains__(self, day: int) -> bool:
        when = date_of(day)
        return bool(self.in_year(when.year) >> when.timetuple().tm_yday - 1 & 1)

    def at_or_after(self, day: int) -> int | None:
        """The first day from `day` on; None if there is none in 50 years."""
        when = date_of(day)
        year, first = when.year, day_number(when.year, 1)
        bits = self.in_year(year) >> day - first
        if bits:
            return day + lowest(bits)
        for later in range(year + 1, min(year + SEARCH_YEARS, LAST_YEAR + 1)):
            bits = self.in_year(later)
            if bits:
                return day_number(later, 1) + lowest(bits)
        return None

    def at_or_before(self, day: int, earliest: int) -> int | None:
        """The last day in `[earliest, day]`."""
        year = date_of(day).year
        while year >= date_of(earliest).year:
            first = day_number(year, 1)
            bits = self.in_year(year) & (2 << day - first) - 1
            if bits:
                found = first + highest(bits)
                return found if found >= earliest else None
            year, day = year - 1, first - 1
        return None

    def count(self, start: int, end: int) -> int:
        """How many days in `[start, end)` there are."""
        found = 0
        for year in range(date_of(start).year, date_of(end).year + 1):
            first = day_number(year, 1)
            bits = self.in_year(year) >> max(start - first, 0)
            found += (bits & (1 << max(end - max(first, start), 0)) - 1).bit_count()
        return found

    def nth_after(self, day: int, number: int) -> int | None:
        """The day with `number` others from `day` on before it; None if it is too far."""
        begin = date_of(day).year
        for year in range(begin, min(begin + _COUNTED_YEARS, LAST_YEAR + 1)):
            first = day_number(year, 1)
            bits = self.in_year(year) >> max(day - first, 0)
            if number < (size := bits.bit_count()):
                for _ in range(number):
                    bits &= bits - 1
                return max(first, day) + lowest(bits)
            number -= size
        return None

    def within(self, start: int, end: int) -> list[int]:
        """The days in `[start, end)`, which belong to one period."""
        found = []
        for year in {date_of(start).year, date_of(end - 1).year}:
            first = day_number(year, 1)
            bits = self.in_year(year)
            found += [day for day in range(max(start, first), end) if bits >> day - first & 1]
        return sorted(found)

    def in_year(self, year: int) -> int:
        spend(_YEAR_STEPS)
        # There are 28 kinds of years: by length, weekday of 1 January, and length of the year before (for its weeks).
        kind = (_length(year), date(year, 1, 1).weekday(), _length(year - 1))
        bits = self._kept.get(kind)
        if bits is None:
            bits = self._kept[kind] = self._named(year)
        return bits if self._interval == 1 else bits & self._in_periods(year)

    def _in_periods(self, year: int) -> int:
        """The days of the periods that the interval leaves."""
        frequency, interval, length = self._rule.frequency, self._interval, _length(year)
        everything = (1 << length) - 1
        if frequency == YEARLY:
            return everything if (year - self._first.year) % interval == 0 else 0
        if frequency == MONTHLY:
            begun = self._first.year * 12 + self._first.month
            months = [month for month in range(1, 13) if (year * 12 + month - begun) % interval == 0]
            return sum(_month(year, month) for month in months)
        first, bits = day_number(year, 1), 0
        size, origin = (7, self._week_first) if frequency == WEEKLY else (1, day_number(*self._first.timetuple()[:3]))
        step = size * interval
        at = -((first - origin) % step)
        while at < length:
            bits |= ((1 << size) - 1) << at if at >= 0 else ((1 << size) - 1) >> -at
            at += step
        return bits & everything

    def _named(self, year: int) -> int:
        """The days that all BY parts name."""
        parts, length = self._parts, _length(year)
        everything = bits = (1 << length) - 1
        if "bymonth" in parts:
            bits &= sum(_month(year, month) for month in parts["bymonth"])
        if "bymonthday" in parts:
            bits &= _month_days(year, parts["bymonthday"])
        if "byyearday" in parts:
            numbers = {number - 1 if number > 0 else number + length for number in parts["byyearday"]}
            bits &= sum(1 << number for number in numbers if 0 <= number < length)
        if "byweekno" in parts:
            bits &= self._weeks(year)
        if "byweekday" in parts:
            plain = {day.weekday for day in parts["byweekday"] if day.n is None}
            numbered = [day for day in parts["byweekday"] if day.n is not None]
            if plain:
                bits &= _weekdays(year, plain)
            if numbered:
                bits &= self._numbered(year, numbered)
        return bits & everything

    def _numbered(self, year: int, days: list[Any]) -> int:
        """`1MO` in each month, or in the year if the rule is yearly and names no month."""
        spans = [_month(year, month) for month in range(1, 13)]
        if self._rule.frequency == YEARLY and "bymonth" not in self._parts:
            spans = [(1 << _length(year)) - 1]
        bits = 0
        for span in spans:
            for day in days:
                matching = _weekdays(year, {day.weekday}) & span
                for _ in range(abs(day.n) - 1):
                    matching &= matching - 1 if day.n > 0 else ~(1 << matching.bit_length() >> 1)
                if matching:
                    bits |= matching & -matching if day.n > 0 else 1 << matching.bit_length() - 1
        return bits

    def _weeks(self, year: int) -> int:
        """The days of numbered weeks, also of weeks of the neighbouring years. Week 1 is the first with four days."""
        wanted, length = set(self._parts["byweekno"]), _length(year)
        first = _first_week(year, self._rule.week_start)
        weeks = (length - first + 3) // 7  # the last week has at least four days in the year
        numbers = {number if number > 0 else number + weeks + 1 for number in wanted}
        bits = sum(_week(first + (number - 1) * 7) for number in numbers if 0 < number <= weeks)
        if 1 in wanted:  # week 1 of the next year may begin in this one
            bits |= _week(first + weeks * 7)
        if first > 0 and (-1 in wanted or _weeks_in(year - 1, self._rule.week_start) in wanted):
            bits |= (1 << first) - 1
        return bits & (1 << length) - 1


def _length(year: int) -> int:
    return 337 + month_length(year, 2)


def _month(year: int, month: int) -> int:
    start = day_number(year, month) - day_number(year, 1)
    return (1 << month_length(year, month)) - 1 << start


def _month_days(year: int, numbers: tuple[int, ...]) -> int:
    bits = 0
    for month in range(1, 13):
        start, length = day_number(year, month) - day_number(year, 1), month_length(year, month)
        days = {number - 1 if number > 0 else number + length for number in numbers}
        bits |= sum(1 << day for day in days if 0 <= day < length) << start
    return bits


def _weekdays(year: int, weekdays: set[int]) -> int:
    begins = date(year, 1, 1).weekday()
    return sum(1 << (weekday - begins) % 7 for weekday in weekdays) * _WEEKS & (1 << _length(year)) - 1


def _first_week(year: int, week_start: int) -> int:
    """The day of the year on which week 1 begins; below zero in the year before."""
    start = (week_start - date(year, 1, 1).weekday()) % 7
    return start if start < 4 else start - 7


def _weeks_in(year: int, week_start: int) -> int:
    return (_length(year) - _first_week(year, week_start) + 3) // 7


def _week(start: int) -> int:
    return 0b1111111 << start if start >= 0 else 0b1111111 >> -start

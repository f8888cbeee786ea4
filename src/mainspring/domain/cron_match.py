"""A parsed cron expression, matched against a wall clock with bit sets.

It knows nothing of zones: it answers "the first matching wall time from here on", in whole seconds as if the
wall clock were UTC. What happens when wall times are skipped or repeated is decided by the schedule that
holds it.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final

from mainspring.domain.cron_fields import (
    ALL_DAYS,
    ALL_HOURS,
    ALL_MINUTES,
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
from mainspring.domain.describe import describe_dates, describe_times

DAY_S: Final = 86_400
SEARCH_YEARS: Final = 50
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


class Cron:
    """A parsed expression. Two expressions that mean the same have the same `text`."""

    __slots__ = (
        "_every_day", "_first_in_hour", "_first_second", "_first_time", "_last_in_hour", "_last_second",
        "_last_time", "_month_days", "_plain_days", "_week", "_weekly", "day_specials", "days",
        "days_starred", "fixed", "hours", "minutes", "months", "need_both", "seconds", "text",
        "weekday_specials", "weekdays",
    )  # fmt: skip

    def __init__(self, fields: Sequence[Field], *, day_and: bool) -> None:
        second, minute, hour, day, month, weekday = fields
        # On the full minute is what five fields mean, so six that say it are written as five.
        self.text = " ".join(field.text for field in (fields[1:] if second.bits == 1 else fields))
        self.fixed = not (minute.starred or hour.starred)
        self.days_starred = day.starred or weekday.starred
        self.need_both = both = day_and or self.days_starred
        self.seconds, self.minutes, self.hours = second.bits, minute.bits, hour.bits
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
        self._first_second, self._last_second = lowest(second.bits), highest(second.bits)
        self._first_in_hour = lowest(minute.bits) * 60 + self._first_second
        self._last_in_hour = highest(minute.bits) * 60 + self._last_second
        self._first_time = lowest(hour.bits) * 3600 + self._first_in_hour
        self._last_time = highest(hour.bits) * 3600 + self._last_in_hour

    @property
    def every_hour(self) -> bool:
        return self.hours == ALL_HOURS

    def next_wall(self, wall: int) -> int | None:
        """The first matching wall time at or after `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time <= self._last_time and (self._every_day or self.matches_day(day)):
            return day * DAY_S + self._next_time(time)
        if self._every_day:
            return (day + 1) * DAY_S + self._first_time
        found = self._next_day(day + 1)
        return None if found is None else found * DAY_S + self._first_time

    def prev_wall(self, wall: int) -> int | None:
        """The last matching wall time at or before `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time >= self._first_time and (self._every_day or self.matches_day(day)):
            return day * DAY_S + self._prev_time(time)
        found = self._prev_day(day - 1)
        return None if found is None else found * DAY_S + self._last_time

    def count_walls(self, low: int, high: int) -> int:
        """How many wall times in `[low, high)` match, by days and bit counts."""
        if high <= low:
            return 0
        (first, start), (last, stop) = divmod(low, DAY_S), divmod(high, DAY_S)
        found = self._count_days(first, last) * self._times_before(DAY_S)
        if start and self.matches_day(first):
            found -= self._times_before(start)
        if stop and self.matches_day(last):
            found += self._times_before(stop)
        return found

    def stretch_at(self, wall: int) -> tuple[int, int]:
        """A stretch `[low, high)` around `wall` that surely matches as a whole; empty if `wall` does not match."""
        day, time = divmod(wall, DAY_S)
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        if not (self.hours >> hour & self.minutes >> minute & self.seconds >> second & 1 and self.matches_day(day)):
            return wall, wall
        length = 1
        if self.seconds == ALL_MINUTES:
            length = 60 if self.minutes != ALL_MINUTES else 3600 if self.hours != ALL_HOURS else DAY_S
        return wall - wall % length, wall - wall % length + length

    def describe(self) -> str:
        """The expression as words: "at 02:00 every day"."""
        time = describe_times(self.seconds, self.minutes, self.hours)
        dates = describe_dates(
            self.days, self.day_specials, self.weekdays, self.weekday_specials, self.months, need_both=self.need_both
        )
        if not dates.startswith("on ") and time.startswith("at ") and " of every " not in time:
            dates = f"every day {dates}"
        return f"{time} {dates}".strip()

    def _next_time(self, time: int) -> int:
        """The first time of day at or after `time`, which must not be past the last one."""
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1 and rest <= self._last_in_hour:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1 and second <= self._last_second:
                return time + lowest(self.seconds >> second)
            minute += 1
            minute += lowest(self.minutes >> minute)
            return hour * 3600 + minute * 60 + self._first_second
        hour += 1
        return (hour + lowest(self.hours >> hour)) * 3600 + self._first_in_hour

    def _prev_time(self, time: int) -> int:
        """The last time of day at or before `time`, which must not be before the first one."""
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1 and rest >= self._first_in_hour:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1 and second >= self._first_second:
                return time - second + highest(self.seconds & (2 << second) - 1)
            return hour * 3600 + highest(self.minutes & (1 << minute) - 1) * 60 + self._last_second
        return highest(self.hours & (1 << hour) - 1) * 3600 + self._last_in_hour

    def _times_before(self, time: int) -> int:
        """How many times of day come before `time`."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        minutes = (self.hours & (1 << hour) - 1).bit_count() * self.minutes.bit_count()
        if self.hours >> hour & 1:
            minutes += (self.minutes & (1 << minute) - 1).bit_count()
            if self.minutes >> minute & 1:
                return minutes * self.seconds.bit_count() + (self.seconds & (1 << second) - 1).bit_count()
        return minutes * self.seconds.bit_count()

    def matches_day(self, day: int) -> bool:
        """Whether a day, in days since the epoch, has matching times."""
        if self._weekly:
            return bool(self.weekdays >> (day + 4) % 7 & 1)
        when = date.fromordinal(day + _EPOCH_DAY)
        if not self.months >> when.month & 1:
            return False
        if self._plain_days:
            on_day, on_weekday = self.days >> when.day & 1, self.weekdays >> (day + 4) % 7 & 1
            return bool(on_day & on_weekday if self.need_both else on_day | on_weekday)
        return bool(self._days_in(day - when.day + 1, month_length(when.year, when.month)) >> when.day & 1)

    def _next_day(self, day: int) -> int | None:
        if self._weekly:
            return day + lowest(self._week >> (day + 4) % 7)
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

    def _prev_day(self, day: int) -> int | None:
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

    def _count_days(self, start: int, end: int) -> int:
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

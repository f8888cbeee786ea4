"""A parsed cron expression, matched against a wall clock.

It knows nothing of zones: it answers "the first matching wall time from here on", in whole seconds as if the
wall clock were UTC. What happens when wall times are skipped or repeated is decided by the schedule that
holds it.
"""

from typing import Final

from mainspring.domain.schedule.cron_dates import Dates
from mainspring.domain.schedule.cron_fields import ALL_HOURS, ALL_MINUTES
from mainspring.domain.schedule.cron_times import Times
from mainspring.domain.schedule.describe import describe_dates, describe_times

DAY_S: Final = 86_400


class Cron:
    """A parsed expression. Two expressions that mean the same have the same `text`."""

    __slots__ = ("dates", "fixed", "times")

    def __init__(self, times: Times, dates: Dates) -> None:
        self.times, self.dates, self.fixed = times, dates, times.fixed

    @property
    def text(self) -> str:
        # On the full minute is what five fields mean, so six that say it are written as five.
        fields = self.times.fields + self.dates.fields
        return " ".join(field.text for field in (fields[1:] if self.times.seconds == 1 else fields))

    @property
    def every_hour(self) -> bool:
        return self.times.hours == ALL_HOURS

    @property
    def is_whole_day(self) -> bool:
        """Whether every second of its days matches."""
        named = self.times
        return named.hours == ALL_HOURS and named.minutes == named.seconds == ALL_MINUTES

    def next_wall(self, wall: int) -> int | None:
        """The first matching wall time at or after `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time > self.times.last:
            day, time = day + 1, 0
        found = self.dates.at_or_after(day)
        if found is None:
            return None
        return found * DAY_S + (self.times.at_or_after(time) if found == day else self.times.first)

    def prev_wall(self, wall: int) -> int | None:
        """The last matching wall time at or before `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time >= self.times.first and day in self.dates:
            return day * DAY_S + self.times.at_or_before(time)
        found = self.dates.at_or_before(day - 1)
        return None if found is None else found * DAY_S + self.times.last

    def count_walls(self, low: int, high: int) -> int:
        """How many wall times in `[low, high)` match, by days and bit counts."""
        if high <= low:
            return 0
        (first, start), (last, stop) = divmod(low, DAY_S), divmod(high, DAY_S)
        found = self.dates.count(first, last) * self.times.count_before(DAY_S)
        if start and first in self.dates:
            found -= self.times.count_before(start)
        if stop and last in self.dates:
            found += self.times.count_before(stop)
        return found

    def stretch_at(self, wall: int) -> tuple[int, int]:
        """A stretch `[low, high)` around `wall` that surely matches as a whole; empty if `wall` does not match."""
        day, time = divmod(wall, DAY_S)
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        named = self.times
        if not (named.hours >> hour & named.minutes >> minute & named.seconds >> second & 1 and day in self.dates):
            return wall, wall
        length = 1
        if named.seconds == ALL_MINUTES:
            length = 60 if named.minutes != ALL_MINUTES else 3600 if named.hours != ALL_HOURS else DAY_S
        return wall - wall % length, wall - wall % length + length

    def describe(self) -> str:
        """The expression as words: "at 02:00 every day"."""
        time = describe_times(self.times.seconds, self.times.minutes, self.times.hours)
        named = self.dates
        dates = describe_dates(
            named.days,
            named.day_specials,
            named.weekdays,
            named.weekday_specials,
            named.months,
            need_both=named.need_both,
        )
        if not dates.startswith("on ") and time.startswith("at ") and " of every " not in time:
            dates = f"every day {dates}"
        return f"{time} {dates}".strip()

"""The times of day, and within a period, that a recurrence rule names."""

from collections.abc import Iterable
from math import gcd
from typing import Any, Final

from mainspring.domain.schedule.cron_fields import ALL_HOURS, ALL_MINUTES, Field, values
from mainspring.domain.schedule.cron_times import Times
from mainspring.domain.schedule.rrule_days import DAILY, HOURLY, MINUTELY, SECONDLY
from mainspring.domain.schedule.zone import DAY_S

UNIT_S: Final = {HOURLY: 3600, MINUTELY: 60, SECONDLY: 1}


class TimeSets:
    """Hours, minutes and seconds as bits; an hourly or finer rule names all that it leaves out."""

    __slots__ = ("hours", "minutes", "seconds")

    def __init__(self, parts: dict[str, Any]) -> None:
        self.hours = _bits(parts["byhour"]) if "byhour" in parts else ALL_HOURS
        self.minutes = _bits(parts["byminute"]) if "byminute" in parts else ALL_MINUTES
        self.seconds = _bits(parts["bysecond"]) if "bysecond" in parts else ALL_MINUTES

    @property
    def size(self) -> int:
        return self.hours.bit_count() * self.minutes.bit_count() * self.seconds.bit_count()

    def names_all(self, unit: int) -> bool:
        """Whether every hour, minute or second, as the unit says, is among them."""
        if self.hours != ALL_HOURS:
            return False
        return unit == 3600 or (self.minutes == ALL_MINUTES and (unit == 60 or self.seconds == ALL_MINUTES))

    def nth(self, number: int) -> int:
        """The time of day with `number` others before it."""
        rest, second = divmod(number, self.seconds.bit_count())
        hour, minute = divmod(rest, self.minutes.bit_count())
        return values(self.hours)[hour] * 3600 + values(self.minutes)[minute] * 60 + values(self.seconds)[second]

    def compiled(self) -> Times | None:
        """The same for searching; None if there is no time of day."""
        if not self.size:
            return None
        return Times(*(Field(bits, False, "") for bits in (self.seconds, self.minutes, self.hours)))

    def leave_steps(self, unit: int, step: int, origin: int) -> None:
        """Leave only the times of day that steps of so many seconds from `origin` can meet on some day.

        If the step divides a minute, an hour or a day, these are exactly the ones that they meet every day.
        """
        minutes = values(self.minutes) if unit <= 60 else [0]
        seconds = values(self.seconds) if unit == 1 else [0]
        day, hour, minute = gcd(step, DAY_S), gcd(step, 3600), gcd(step, 60)
        below = {(m * 60 + s) % day for m in minutes for s in seconds}
        self.hours = _bits(h for h in values(self.hours) if (origin - h * 3600) % day in below)
        if unit <= 60:
            fine = {s % hour for s in seconds}
            self.minutes = _bits(m for m in minutes if (origin - m * 60) % hour in fine)
        if unit == 1:
            self.seconds = _bits(s for s in seconds if (s - origin) % minute == 0)


def is_even(step: int) -> bool:
    """Whether steps of so many seconds meet the same times every day, hour by hour and minute by minute."""
    return 60 % step == 0 or (step % 60 == 0 and 3600 % step == 0) or (step % 3600 == 0 and DAY_S % step == 0)


def offsets_in_period(frequency: int, sets: TimeSets, positions: tuple[int, ...]) -> list[int]:
    """The seconds after the start of an hour or minute at which an hourly or finer rule fires, in order.

    `positions` (BYSETPOS) chooses among them; they are the same in every period.
    """
    minutes = values(sets.minutes) if frequency <= HOURLY else [0]
    seconds = values(sets.seconds) if frequency <= MINUTELY else [0]
    found = [minute * 60 + second for minute in minutes for second in seconds]
    return [found[place] for place in places(positions, len(found))] if positions else found


def places(positions: Iterable[int], size: int) -> list[int]:
    """BYSETPOS as indexes into a set of so many, in order."""
    found = {position - 1 if position > 0 else size + position for position in positions}
    return sorted(place for place in found if 0 <= place < size)


def times_of_day(rule_frequency: int, sets: TimeSets, positions: tuple[int, ...]) -> list[int] | None:
    """The times that BYSETPOS leaves of a daily rule: the same every day. None if all are left."""
    if not positions or rule_frequency != DAILY:
        return None
    return [sets.nth(place) for place in places(positions, sets.size)]


def _bits(numbers: Iterable[int]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits

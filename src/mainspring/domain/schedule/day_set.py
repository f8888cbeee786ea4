"""Days by date and by rule, searched a month at a time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from mainspring.domain.schedule.budget import spend
from mainspring.domain.schedule.cron_dates import Dates
from mainspring.domain.schedule.cron_fields import highest, lowest, month_length
from mainspring.domain.schedule.zone import LAST_DAY, date_of, day_number

_FIRST_DAY: Final = day_number(1, 1, 1)
_MOST_KEPT: Final = 1_200


class DaySet:
    """Days since the epoch that are listed or that one of the rules names."""

    __slots__ = ("_kept", "_listed", "_rules", "_steps")

    def __init__(self, days: Iterable[int], rules: Sequence[Dates]) -> None:
        self._rules = tuple(rules)
        self._listed: defaultdict[int, int] = defaultdict(int)
        for day in days:
            when = date_of(day)
            self._listed[when.year * 12 + when.month - 1] |= 1 << when.day
        self._kept: dict[int, int] = {}
        self._steps = 1 + len(self._rules) // 4

    def __bool__(self) -> bool:
        return bool(self._rules or self._listed)

    def __contains__(self, day: int) -> bool:
        if day > LAST_DAY:
            return False
        when = date_of(day)
        return bool(self._in_month(when.year * 12 + when.month - 1, day - when.day + 1) >> when.day & 1)

    def next_day(self, day: int, last: int, *, listed: bool) -> int | None:
        """The first day in `[day, last]` that is in the set, or that is not."""
        last = min(last, LAST_DAY)
        if day > last:
            return None
        when = date_of(day)
        months, first, ahead = when.year * 12 + when.month - 1, day - when.day + 1, -1 << when.day
        while first <= last:
            length = month_length(*_year_and_month(months))
            bits = self._bits(months, first, length, listed=listed) & ahead
            if bits:
                found = first + lowest(bits) - 1
                return found if found <= last else None
            months, first, ahead = months + 1, first + length, -1
        return None

    def prev_day(self, day: int, earliest: int, *, listed: bool) -> int | None:
        """The last day in `[earliest, day]` that is in the set, or that is not."""
        earliest = max(earliest, _FIRST_DAY)
        if day < earliest:
            return None
        when = date_of(day)
        months, first, behind = when.year * 12 + when.month - 1, day - when.day + 1, (2 << when.day) - 1
        while True:
            bits = self._bits(months, first, month_length(*_year_and_month(months)), listed=listed) & behind
            if bits:
                found = first + highest(bits) - 1
                return found if found >= earliest else None
            if first <= earliest:
                return None
            months, behind = months - 1, -1
            first -= month_length(*_year_and_month(months))

    def _bits(self, months: int, first: int, length: int, *, listed: bool) -> int:
        bits = self._in_month(months, first)
        return bits if listed else ~bits & (2 << length) - 2

    def _in_month(self, months: int, first: int) -> int:
        """The days of a month, bit n for the n-th; `first` is its first day."""
        bits = self._kept.get(months)
        if bits is None:
            spend(self._steps)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            bits = self._listed.get(months, 0)
            year, month = _year_and_month(months)
            for rule in self._rules:
                bits |= rule.in_month(year, month, first)
            self._kept[months] = bits
        return bits


def _year_and_month(months: int) -> tuple[int, int]:
    year, month = divmod(months, 12)
    return year, month + 1

"""The days that a schedule of a source names."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

ALL_MONTH_DAYS = frozenset(range(1, 32))
ALL_WEEKDAYS = frozenset(range(7))
ALL_MONTHS = frozenset(range(1, 13))


@dataclass(frozen=True, slots=True)
class DayTerm:
    """A day by rule.

    `last`: `number` days before the last day of the month. `nearest`: the working day nearest to day `number`, or the
    last working day. `nth`: the `number`-th `weekday` of the month, or the last one. Sunday is 0.
    """

    kind: Literal["last", "nearest", "nth"]
    number: int | None = None
    weekday: int = 0


@dataclass(frozen=True, slots=True)
class DayRule:
    """Days of the month and of the week, months and years. `either`: one of the two day fields is enough."""

    month_days: frozenset[int] = ALL_MONTH_DAYS
    weekdays: frozenset[int] = ALL_WEEKDAYS
    months: frozenset[int] = ALL_MONTHS
    either: bool = False
    month_day_terms: tuple[DayTerm, ...] = ()
    weekday_terms: tuple[DayTerm, ...] = ()
    years: frozenset[int] | None = None

    def days_from(self, first: date, last: date) -> Iterator[date]:
        """The days of the rule from `first` to `last`, both inclusive."""
        year, month = first.year, first.month
        while (year, month) <= (last.year, last.month):
            if month in self.months and (self.years is None or year in self.years):
                for day in self._days_in(year, month):
                    if first <= (found := date(year, month, day)) <= last:
                        yield found
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)

    def _days_in(self, year: int, month: int) -> Iterator[int]:
        weekday_of_first, length = calendar.monthrange(year, month)
        first = (weekday_of_first + 1) % 7
        by_number = {_day_of(term, first, length) for term in self.month_day_terms}
        by_weekday = {_day_of(term, first, length) for term in self.weekday_terms}
        for day in range(1, length + 1):
            on_number = day in self.month_days or day in by_number
            on_weekday = (first + day - 1) % 7 in self.weekdays or day in by_weekday
            if (on_number or on_weekday) if self.either else (on_number and on_weekday):
                yield day


def _day_of(term: DayTerm, first: int, length: int) -> int:
    """The day of a month that begins on weekday `first`; 0 if the month has none."""
    if term.kind == "last":
        return max(0, length - (term.number or 0))
    if term.kind == "nth":
        matching = [day for day in range(1, length + 1) if (first + day - 1) % 7 == term.weekday]
        if term.number is None:
            return matching[-1]
        return matching[term.number - 1] if term.number <= len(matching) else 0
    wanted = length if term.number is None else term.number
    if wanted > length:
        return 0
    working = [day for day in range(1, length + 1) if (first + day - 1) % 7 not in (0, 6)]
    return min(working, key=lambda day: abs(day - wanted))

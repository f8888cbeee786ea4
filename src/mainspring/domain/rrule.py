"""Recurrence rules of RFC 5545, expanded by python-dateutil on wall times.

dateutil walks a rule from its start. A rule without COUNT is instead taken up at the period in question, with
everything it derives from its start written out, so that a fire in the tenth year costs as much as the first.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from dateutil.rrule import rrule

from mainspring.domain.rrule_text import FREQUENCIES, Rule
from mainspring.domain.zone import DAY_S

HOURLY, MINUTELY, SECONDLY = (FREQUENCIES.index(name) for name in ("HOURLY", "MINUTELY", "SECONDLY"))
YEARLY, MONTHLY, WEEKLY, DAILY = range(4)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_SEARCH_S: Final = 50 * 366 * DAY_S
_AHEAD: Final = 64
# The calendar repeats every 400 years, weekdays included. A rule without a match is searched up to the year
# 9999; moved near to it, that is some hundred years instead of thousands.
_CYCLE_YEARS: Final = 400
_CYCLE: Final = timedelta(days=146_097)
_LATEST_START: Final = 9948
_UNIT_S: Final = {WEEKLY: 7 * DAY_S, DAILY: DAY_S, HOURLY: 3600, MINUTELY: 60, SECONDLY: 1}


class RulePattern:
    """The wall times of a rule from `start` on, without `without` and the whole `days_off`."""

    __slots__ = ("_counted", "_days_off", "_rule", "_start", "_walls", "_without", "every_hour", "fixed")

    def __init__(self, rule: Rule, start: int, without: frozenset[int], days_off: frozenset[int]) -> None:
        self._rule, self._start, self._without, self._days_off = rule, start, without, days_off
        self.fixed = rule.frequency < HOURLY
        self.every_hour = not self.fixed and rule.interval == 1 and "byhour" not in rule.by
        self._walls: list[int] = []  # matches without a hole, to answer neighbouring questions
        self._counted = self._expand_counted() if rule.most is not None else None

    def next_wall(self, wall: int) -> int | None:
        wall = max(wall, self._start)
        known = self._walls
        if not known or not known[0] <= wall <= known[-1]:
            known = self._known_from(wall)
        while known:
            for found in islice(known, bisect_left(known, wall), None):
                if found not in self._without and found // DAY_S not in self._days_off:
                    return found
            wall = known[-1] + 1
            known = self._known_from(wall)
        return None

    def prev_wall(self, wall: int) -> int | None:
        """By halving: the latest start of a search that still finds something up to `wall`."""
        low, reach = wall, 1
        while not self._any_between(low, wall):
            if low <= self._start or reach > _SEARCH_S:
                return None
            low, reach = max(wall - reach, self._start), reach * 2
        high = wall + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._any_between(middle, wall) else (low, middle)
        return self.next_wall(low)

    def count_walls(self, low: int, high: int) -> int:
        found, wall = 0, self.next_wall(low)
        while wall is not None and wall < high:
            found, wall = found + 1, self.next_wall(wall + 1)
        return found

    def describe(self) -> str:
        return self._rule.describe(_EPOCH + timedelta(seconds=self._start))

    def _any_between(self, low: int, high: int) -> bool:
        found = self.next_wall(low)
        return found is not None and found <= high

    def _known_from(self, wall: int) -> list[int]:
        """Some matches from `wall` on; kept, and empty if there is none."""
        until = self._rule.until
        if until is not None and wall > until:
            return []
        if self._counted is not None:
            return self._counted_from(wall)
        found = list(islice(self._expand(wall), _AHEAD))
        if found and found[0] > wall + _SEARCH_S:
            found = []
        self._walls = found or self._walls
        return found

    def _counted_from(self, wall: int) -> list[int]:
        assert self._counted is not None
        while not self._walls or self._walls[-1] < wall:
            more = list(islice(self._counted, _AHEAD))
            if not more:
                break
            self._walls += more
        return self._walls if self._walls and self._walls[-1] >= wall else []

    def _expand(self, wall: int) -> Iterator[int]:
        """Matches from `wall` on, by a rule that starts with the period that contains it."""
        begin = self._period_start(wall)
        move = _CYCLE * max(0, (_LATEST_START - begin.year) // _CYCLE_YEARS)
        for found in self._walk(begin + move):
            seconds = (found - move - _EPOCH) // timedelta(seconds=1)
            if self._rule.until is not None and seconds > self._rule.until:
                return
            if seconds >= wall:
                yield seconds

    def _expand_counted(self) -> Iterator[int]:
        if next(self._expand(self._start), None) is None:
            return
        for found in islice(self._walk(_EPOCH + timedelta(seconds=self._start)), self._rule.most):
            yield (found - _EPOCH) // timedelta(seconds=1)

    def _walk(self, begin: datetime) -> Iterator[datetime]:
        rule = self._rule
        parts: dict[str, Any] = rule.explicit(_EPOCH + timedelta(seconds=self._start))
        try:
            yield from rrule(rule.frequency, dtstart=begin, interval=rule.interval, wkst=rule.week_start, **parts)
        except ValueError:  # an interval that steps over every hour or minute asked for
            return

    def _period_start(self, wall: int) -> datetime:
        """Where the last period at or before `wall` begins, a whole number of intervals after the first."""
        first = _EPOCH + timedelta(seconds=self._start)
        frequency, interval = self._rule.frequency, self._rule.interval
        if frequency <= MONTHLY:
            when = _EPOCH + timedelta(seconds=wall)
            step, month = (12, 0) if frequency == YEARLY else (1, first.month - 1)
            begun = first.year * 12 + month
            periods = (when.year * 12 + when.month - 1 - begun) // step // interval * interval
            year, month = divmod(begun + periods * step, 12)
            return first if periods == 0 else _EPOCH.replace(year=year, month=month + 1)
        length = _UNIT_S[frequency]
        origin = self._start - self._start % min(length, DAY_S)
        if frequency == WEEKLY:
            origin -= (first.weekday() - self._rule.week_start) % 7 * DAY_S
        periods = (wall - origin) // length // interval * interval
        return first if periods == 0 else _EPOCH + timedelta(seconds=origin + periods * length)

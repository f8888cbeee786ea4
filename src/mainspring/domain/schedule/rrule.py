"""Recurrence rules of RFC 5545, expanded by python-dateutil on wall times.

dateutil walks a rule from its start. A rule without COUNT is started at the requested period instead, with all values
that it derives from its start made explicit, so a fire in the tenth year costs as much as the first.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from dateutil.rrule import DAILY, HOURLY, MINUTELY, MONTHLY, SECONDLY, WEEKLY, YEARLY, rrule

from mainspring.domain.schedule.rrule_text import Rule
from mainspring.domain.schedule.zone import DAY_S

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_SEARCH_S: Final = 50 * 366 * DAY_S
_AHEAD: Final = 64
# The calendar repeats every 400 years, weekdays included. A rule without a match is searched up to the year
# 9999; moved near to it, that is some hundred years instead of thousands.
_CYCLE_YEARS: Final = 400
_CYCLE: Final = timedelta(days=146_097)
_LATEST_START: Final = 9948
_SECOND: Final = timedelta(seconds=1)
_DAY_PARTS: Final = {"bymonth", "bymonthday", "byyearday", "byweekday"}
_UNIT_S: Final = {WEEKLY: 7 * DAY_S, DAILY: DAY_S, HOURLY: 3600, MINUTELY: 60, SECONDLY: 1}


class RulePattern:
    """The wall times of a rule from `start` on, without `without` and the whole `days_off`."""

    __slots__ = ("_counted", "_days_off", "_parts", "_rule", "_start", "_walls", "_without", "every_hour", "fixed")

    def __init__(self, rule: Rule, start: int, without: frozenset[int], days_off: frozenset[int]) -> None:
        self._rule, self._start, self._without, self._days_off = rule, start, without, days_off
        self.fixed = rule.frequency < HOURLY
        self.every_hour = not self.fixed and rule.interval == 1 and "byhour" not in rule.by
        self._walls: list[int] = []  # matches without a hole, to answer neighbouring questions
        self._parts: dict[str, Any] = rule.explicit(_EPOCH + timedelta(seconds=start))
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
        """The latest match that a search finds up to `wall`: farther and farther back, then by halving."""
        reach, found = 1, self.next_wall(wall)
        while found is None or found > wall:
            if wall - reach < self._start or reach > _SEARCH_S:
                return None
            reach *= 16
            found = self.next_wall(wall - reach)
        high = wall + 1
        while high - found > 1:
            middle = (found + high) // 2
            later = self.next_wall(middle)
            if later is None or later > wall:
                high = middle
            else:
                found = later
        return found

    def count_walls(self, low: int, high: int) -> int:
        found, wall = 0, self.next_wall(low)
        while wall is not None and wall < high:
            found, wall = found + 1, self.next_wall(wall + 1)
        return found

    def describe(self) -> str:
        return self._rule.describe(_EPOCH + timedelta(seconds=self._start))

    def _known_from(self, wall: int) -> list[int]:
        """Some matches from `wall` on; kept, and empty if there is none."""
        until = self._rule.until
        if until is not None and wall > until:
            return []
        if self._counted is not None:
            return self._counted_from(wall)
        found: list[int] = []
        for match in self._expand(wall):
            if not found and match > wall + _SEARCH_S:
                return []
            found.append(match)
            # The far future of a rare rule is not worth the search.
            if len(found) == _AHEAD or match > wall + _AHEAD * DAY_S:
                break
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
        """Matches from `wall` on."""
        if self._rule.frequency >= HOURLY and self._rule.by.keys() & _DAY_PARTS:
            return self._expand_days(wall)
        return self._walk(wall, self._parts)

    def _expand_days(self, wall: int) -> Iterator[int]:
        """Matches of an hourly or finer rule that is limited to certain days.

        dateutil would step through every second of the days in between; here the days are found first.
        """
        times = {name: values for name, values in self._parts.items() if name not in _DAY_PARTS}
        last = wall + _SEARCH_S
        for day in self._days_from(wall // DAY_S):
            if (day + 1) * DAY_S <= wall:
                continue
            found = None
            for found in self._walk(max(wall, day * DAY_S), times):
                if found // DAY_S != day:
                    break
                yield found
            if found is None or found > last:
                return
            wall = max(found, (day + 1) * DAY_S)

    def _days_from(self, day: int) -> Iterator[int]:
        parts: dict[str, Any] = {name: values for name, values in self._parts.items() if name in _DAY_PARTS}
        begin, move = _moved(_EPOCH + timedelta(days=day))
        for found in rrule(DAILY, dtstart=begin, **parts):
            yield (found - move - _EPOCH).days

    def _expand_counted(self) -> Iterator[int]:
        # What has a first match has more of them; what has none would be searched for thousands of years.
        if next(self._expand(self._start), None) is not None:
            found = self._expand(self._start) if self._rule.frequency >= HOURLY else self._walk_on()
            yield from islice(found, self._rule.most)

    def _walk(self, wall: int, parts: dict[str, Any]) -> Iterator[int]:
        """Matches from `wall` on, by a rule that starts with the period that contains it."""
        rule = self._rule
        begin, move = _moved(self._period_start(wall))
        try:
            for found in rrule(rule.frequency, dtstart=begin, interval=rule.interval, wkst=rule.week_start, **parts):
                seconds = (found - move - _EPOCH) // _SECOND
                if rule.until is not None and seconds > rule.until:
                    return
                if seconds >= wall:
                    yield seconds
        except ValueError:  # an interval that steps over every hour or minute asked for
            return

    def _walk_on(self) -> Iterator[int]:
        """All matches, however far they reach."""
        wall: int | None = self._start
        while wall is not None:
            last = None
            for last in self._walk(wall, self._parts):
                yield last
            wall = None if last is None else last + 1

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


def _moved(begin: datetime) -> tuple[datetime, timedelta]:
    """A start moved by whole cycles of the calendar, and by how much."""
    move = _CYCLE * max(0, (_LATEST_START - begin.year) // _CYCLE_YEARS)
    return begin + move, move

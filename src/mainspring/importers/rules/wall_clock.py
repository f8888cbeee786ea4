"""When a source fires by the wall clock of a zone, computed day by day from `zoneinfo`.

Independent of Mainspring's schedules on purpose: the report of an import compares the two. Each source has its own
rule for times that a clock change skips or repeats:

- `gap`: a skipped time does not fire (`skip`), fires at the first instant after the gap (`after`), or the first of
  them by the length of the gap later (`shift`).
- `passes`: a repeated time fires in the `first` pass, the `second`, or `both`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from mainspring.importers.rules.days import DayRule

Gap = Literal["skip", "after", "shift"]
Passes = Literal["first", "second", "both"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DAY = date(2400, 1, 1)
# A wall time is at most so far from the same time in UTC.
_REACH = timedelta(hours=30)
_ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class WallRule:
    """Times of day on certain days, in a zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: DayRule
    zone: str = "UTC"
    seconds: frozenset[int] = frozenset({0})
    gap: Gap = "skip"
    passes: Passes = "first"

    def fires(self, after_ms: int) -> Iterator[int]:
        """The fires after an instant, in milliseconds since the epoch, in order and each once."""
        zone = ZoneInfo(self.zone)
        after = EPOCH + timedelta(milliseconds=after_ms)
        waiting: list[int] = []
        emitted = after_ms
        for day in self.days.days_from((after - _REACH).date(), LAST_DAY):
            sure = _ms(datetime(day.year, day.month, day.day, tzinfo=UTC) - _REACH)
            # An instant of this day or a later one cannot be before `sure`.
            while waiting and waiting[0] < sure:
                if (fire := heapq.heappop(waiting)) > emitted:
                    emitted = fire
                    yield fire
            if (offset := _constant_offset(day, zone)) is None:
                for fire in self._on_day_of_change(day, zone, emitted):
                    heapq.heappush(waiting, fire)
                continue
            midnight = _ms(datetime(day.year, day.month, day.day, tzinfo=UTC)) - offset
            for time in self._times():
                if (fire := midnight + time * 1000) > emitted:
                    while waiting and waiting[0] < fire:
                        if (earlier := heapq.heappop(waiting)) > emitted:
                            emitted = earlier
                            yield earlier
                    emitted = fire
                    yield fire
        while waiting:
            if (fire := heapq.heappop(waiting)) > emitted:
                emitted = fire
                yield fire

    def _times(self) -> Iterator[int]:
        """Times of day in seconds, in order."""
        seconds, minutes = sorted(self.seconds), sorted(self.minutes)
        for hour in sorted(self.hours):
            for minute in minutes:
                for second in seconds:
                    yield hour * 3600 + minute * 60 + second

    def _on_day_of_change(self, day: date, zone: ZoneInfo, after_ms: int) -> Iterator[int]:
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall time has no zone
        skipped_s = (after_ms - _ms(midnight.replace(tzinfo=UTC) + _REACH)) // 1000
        is_shifted = False
        for time in self._times():
            if time <= skipped_s:
                continue
            wall = midnight + timedelta(seconds=time)
            if found := self._shown(wall, zone):
                yield from found
            elif not is_shifted:
                yield from self._made_up(wall, zone)
                is_shifted = self.gap == "shift"

    def _shown(self, wall: datetime, zone: ZoneInfo) -> list[int]:
        """The instants of a wall time that count; none if the clocks skip it."""
        both = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        shown = [at for at in sorted(both) if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall]
        which = {"first": shown[:1], "second": shown[-1:], "both": shown}[self.passes]
        return [_ms(at) for at in which]

    def _made_up(self, wall: datetime, zone: ZoneInfo) -> list[int]:
        """When a skipped time fires. Fold 0 counts with the offset before the gap, fold 1 with the one after it."""
        late, early = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if self.gap == "skip" or late - early >= _ONE_DAY:
            return []
        return [_ms(late if self.gap == "shift" else _first_after(early, late, zone))]


def clock_changes(zone: str, after_ms: int, count: int, *, days: int = 800) -> list[int]:
    """The next instants at which the offset of a zone changes."""
    info = ZoneInfo(zone)
    at = EPOCH + timedelta(milliseconds=after_ms)
    found: list[int] = []
    for _ in range(days):
        if len(found) == count:
            break
        later = at + _ONE_DAY
        if at.astimezone(info).utcoffset() != later.astimezone(info).utcoffset():
            found.append(_ms(_first_after(at, later, info)))
        at = later
    return found


def _first_after(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second at which the offset is the one of `after`, not the one of `before`."""
    low, high, old = before, after, before.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == old else (low, middle)
    return high


def _constant_offset(day: date, zone: ZoneInfo) -> int | None:
    """The offset of all of a day in milliseconds; None if it changes on that day or close to it."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    offsets = {(noon + hours).astimezone(zone).utcoffset() for hours in _AROUND}
    if len(offsets) > 1:
        return None
    offset = offsets.pop()
    assert offset is not None
    return round(offset.total_seconds() * 1000)


# Around noon, all wall times of a day with a margin. No zone changes its clock twice within so short a time.
_AROUND = tuple(timedelta(hours=hours) for hours in (-40, -27, -12, 0, 12, 27, 40))


def _ms(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * 1000)

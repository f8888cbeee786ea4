"""Schedules that follow a wall clock: patterns of wall times, and what clock changes do to their fires."""

from typing import Final, Literal, Protocol

from mainspring.domain.duration import spell_duration
from mainspring.domain.schedule.cron_fields import month_length
from mainspring.domain.schedule.describe import describe_clock
from mainspring.domain.schedule.recurrence import SEARCH_MS, Schedule
from mainspring.domain.schedule.zone import (
    DAY_S,
    EVERY_PASS,
    FIRST_PASS,
    LAST_DAY,
    NO_SEGMENT,
    REACH_S,
    SECOND_PASS,
    Segment,
    Zone,
    date_of,
    day_number,
)

Gap = Literal["next_valid", "skip"]
OverlapHour = Literal["first", "second", "both"]

_PASSES: Final = {"first": FIRST_PASS, "second": SECOND_PASS, "both": EVERY_PASS}


class Pattern(Protocol):
    """Wall times that match; `fixed` ones are made up for when skipped and not repeated when shown twice."""

    @property
    def fixed(self) -> bool: ...
    @property
    def every_hour(self) -> bool: ...
    def next_wall(self, wall: int) -> int | None: ...
    def prev_wall(self, wall: int) -> int | None: ...
    def count_walls(self, low: int, high: int) -> int: ...
    def describe(self) -> str: ...


class CalendarDays:
    """The same wall time every n days."""

    __slots__ = ("_days", "_phase")
    fixed = True
    every_hour = False

    def __init__(self, days: int, phase_s: int) -> None:
        self._days, self._phase = days, phase_s

    def next_wall(self, wall: int) -> int:
        return wall + (self._phase - wall) % (self._days * DAY_S)

    def prev_wall(self, wall: int) -> int:
        return wall - (wall - self._phase) % (self._days * DAY_S)

    def count_walls(self, low: int, high: int) -> int:
        period = self._days * DAY_S
        return max(0, (high - 1 - self._phase) // period - (low - 1 - self._phase) // period)

    def describe(self) -> str:
        return f"at {describe_clock(self._phase % DAY_S)} every {spell_duration(self._days * DAY_S)}"


class CalendarMonths:
    """The same day and wall time every n months; the last day of a month that is too short for it."""

    __slots__ = ("_day", "_months", "_phase", "_time")
    fixed = True
    every_hour = False

    def __init__(self, months: int, phase_months: int, day: int, time_s: int) -> None:
        self._months, self._phase, self._day, self._time = months, phase_months, day, time_s

    def next_wall(self, wall: int) -> int:
        return self._wall(self._count_before(wall))

    def prev_wall(self, wall: int) -> int:
        return self._wall(self._count_before(wall + 1) - 1)

    def count_walls(self, low: int, high: int) -> int:
        return max(0, self._count_before(high) - self._count_before(low))

    def describe(self) -> str:
        every = "every month" if self._months == 1 else f"every {self._months} months"
        short = ", or the last day of a shorter month" if self._day > 28 else ""
        return f"at {describe_clock(self._time)} on day {self._day} {every}{short}"

    def _count_before(self, wall: int) -> int:
        """The number of the first match at or after `wall`."""
        when = date_of(min(wall // DAY_S, LAST_DAY))
        number = -((self._phase - when.year * 12 - when.month + 1) // self._months)
        return number if self._wall(number) >= wall else number + 1

    def _wall(self, number: int) -> int:
        year, month = divmod(number * self._months + self._phase, 12)
        day = min(self._day, month_length(year, month + 1))
        return (day_number(year, month + 1) + day - 1) * DAY_S + self._time


class WallClock(Schedule):
    """A pattern of wall times in a zone, with a rule for skipped and for repeated ones."""

    __slots__ = ("_fill_gaps", "_last", "counted_pass", "pattern", "zone")

    def __init__(self, pattern: Pattern, zone: Zone, gap: Gap, overlap_hour: OverlapHour) -> None:
        self.pattern, self.zone = pattern, zone
        self._fill_gaps = pattern.fixed and gap == "next_valid"
        self.counted_pass = _PASSES[overlap_hour] if pattern.fixed else EVERY_PASS
        self._last = NO_SEGMENT

    def next_after(self, ms: int) -> int | None:
        instant = ms // 1000 + 1
        segment = self._last
        if not segment.start <= instant < segment.end:
            segment = self._last = self.zone.segment_at(instant)
        low, high = segment.windows[self.counted_pass]
        offset = segment.offset
        wall = instant + offset
        if wall > low:  # the rest of a segment: nearly every call ends here
            found = self.pattern.next_wall(wall)
            if found is None:
                return self._shown_again(instant)
            if found < high:
                return (found - offset) * 1000
            instant = self._skip(instant, segment, found)
        return self._next_from_start(instant, ms + SEARCH_MS)

    def prev_before(self, ms: int) -> int | None:
        instant: int | None = (ms - 1) // 1000
        while instant is not None and instant * 1000 > ms - SEARCH_MS:
            segment = self.zone.segment_at(instant)
            low, high = segment.windows[self.counted_pass]
            found = self.pattern.prev_wall(min(instant + segment.offset, high - 1))
            if found is not None and found >= low:
                return (found - segment.offset) * 1000
            if self.fires_for_gap(segment):
                return segment.start * 1000
            instant = self._skip_back(instant, segment, found)
        return None

    def count_between(self, start_ms: int, end_ms: int) -> int:
        first, last = start_ms // 1000 + 1, end_ms // 1000
        if last < first:
            return 0
        found = 0
        for segment in self.zone.segments_between(first, last):
            low, high = segment.windows[self.counted_pass]
            begin, end = max(first, segment.start), min(last + 1, segment.end)
            found += self.pattern.count_walls(max(begin + segment.offset, low), min(end + segment.offset, high))
            if begin == segment.start and self.fires_for_gap(segment):
                # The instant after the gap may be a fire of its own; then it is one with the one made up.
                found += self.pattern.next_wall(segment.gap_until) != segment.gap_until
        return found

    def describe(self) -> str:
        where = "" if self.zone.name == "UTC" else f" ({self.zone.name})"
        return self.pattern.describe() + where

    def fires_for_gap(self, segment: Segment) -> bool:
        """Whether fires that were skipped just before `segment` are made up for at its first instant."""
        if not self._fill_gaps or not 0 < segment.gap_until - segment.gap_from < DAY_S:
            return False
        found = self.pattern.next_wall(segment.gap_from)
        return found is not None and found < segment.gap_until

    def _next_from_start(self, instant: int, until_ms: int) -> int | None:
        """The first fire at or after `instant`, segment by segment."""
        while instant * 1000 <= until_ms:
            segment = self.zone.segment_at(instant)
            if instant == segment.start and self.fires_for_gap(segment):
                return instant * 1000
            low, high = segment.windows[self.counted_pass]
            found = self.pattern.next_wall(max(instant + segment.offset, low))
            if found is None:
                return self._shown_again(instant)
            if found < high:
                return (found - segment.offset) * 1000
            instant = self._skip(instant, segment, found)
        return None

    def _shown_again(self, instant: int) -> int | None:
        """The first fire after `instant` of a pattern that has come to its end: its last hour may repeat."""
        for segment in self.zone.segments_between(instant, instant + REACH_S):
            if segment.start > instant:
                low, high = segment.windows[self.counted_pass]
                found = self.pattern.next_wall(low)
                if found is not None and found < high:
                    return (found - segment.offset) * 1000
        return None

    def _skip(self, instant: int, segment: Segment, found: int) -> int:
        """Where to go on when the next match is beyond `segment`: rare fires pass over years at once."""
        # What comes just after may show wall times before `found` again.
        if segment.end - instant < REACH_S:
            return segment.end
        return max(segment.end, self.zone.segment_at(found - 2 * DAY_S).start)

    def _skip_back(self, instant: int, segment: Segment, found: int | None) -> int | None:
        """Where to go on when the match before is earlier than `segment`."""
        if instant - segment.start < REACH_S:
            return segment.start - 1
        if found is None:
            return None
        return min(segment.start - 1, self.zone.segment_at(found + 2 * DAY_S).end - 1)

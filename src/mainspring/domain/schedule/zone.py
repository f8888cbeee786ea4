"""Time zones as integer arithmetic: which wall clock times exist, exist twice, or never exist.

A zone is cut into *segments* of constant offset. `zoneinfo` answers what the offset is at an instant but not
when it changes, so the changes are found by probing and bisecting, a block of years at a time, and kept.
Everything here is in whole seconds: instants since the epoch (UTC), wall times as if the wall clock were UTC.
"""

import difflib
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import cache
from typing import Final

from mainspring.domain.schedule.budget import spend

DAY_S: Final = 86_400
# No zone since 1900 has two changes within 95 hours, so one probe in two days misses none, and a repeated or
# skipped hour never reaches beyond the neighbouring segment.
_PROBE_S: Final = 2 * DAY_S
_BLOCK_S: Final = 1461 * DAY_S
_MARGIN_S: Final = 4 * DAY_S
# After 2100 zones follow a yearly rule, with weeks between two changes; before, some list shorter periods.
_FAR_PROBE_S: Final = 14 * DAY_S
_FAR: Final = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
# Kept blocks are bounded: requests may name any year.
_MOST_BLOCKS: Final = 64
# `datetime` ends at the year 9999: beyond these instants the offset is taken not to change any more.
_FIRST_KNOWN: Final = int(datetime(1000, 1, 1, tzinfo=UTC).timestamp())
_LAST_KNOWN: Final = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp())
# No wall clock is further from UTC than this.
REACH_S: Final = 26 * 3600

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
LAST_DAY: Final = date.max.toordinal() - _EPOCH_DAY

EVERY_PASS: Final = 0
FIRST_PASS: Final = 1
SECOND_PASS: Final = 2


class ZoneError(ValueError):
    """Not an IANA zone name; `hint` says which one was probably meant."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"unknown time zone {name!r}")
        self.name = name
        self.hint = hint


class Segment:
    """A stretch `[start, end)` of instants with one offset, and what is special about its wall times.

    `windows[pass]` is the half-open range of wall times that count here: all of them, those not already seen
    in the segment before (first pass), or those that do not come again in the next one (second pass).
    Wall times `[gap_from, gap_until)` were skipped when the segment began; `[repeat_from, repeat_until)` are
    those at its beginning that the segment before had already shown.
    """

    __slots__ = ("end", "gap_from", "gap_until", "offset", "repeat_from", "repeat_until", "start", "windows")

    def __init__(self, start: int, end: int, offset: int, seen_until: int, again_from: int, *, is_change: bool) -> None:
        self.start, self.end, self.offset = start, end, offset
        first, last = start + offset, end + offset
        self.windows = ((first, last), (max(first, seen_until), last), (first, min(last, again_from)))
        self.gap_from = min(seen_until, first) if is_change else first
        self.gap_until = first
        self.repeat_from = first
        self.repeat_until = max(seen_until, first) if is_change else first


NO_SEGMENT: Final = Segment(0, 0, 0, 0, 0, is_change=False)


class Zone:
    """One IANA zone; get it from `load_zone`, which keeps them."""

    __slots__ = ("_blocks", "_info", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._info = zoneinfo.ZoneInfo(name)
        self._blocks: dict[int, tuple[list[int], list[Segment]]] = {}

    def segment_at(self, instant: int) -> Segment:
        """The segment that contains `instant`."""
        number = instant // _BLOCK_S
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            segments = list(self._build(number * _BLOCK_S, (number + 1) * _BLOCK_S))
            block = self._blocks[number] = ([segment.start for segment in segments], segments)
        return block[1][bisect_right(block[0], instant) - 1]

    def instants_of(self, wall: int) -> tuple[int, ...]:
        """All instants at which the wall clock shows `wall`: none in a gap, two in a repeated hour."""
        return tuple(
            wall - segment.offset
            for segment in self._segments_near(wall)
            if segment.start <= wall - segment.offset < segment.end
        )

    def first_after_gap(self, wall: int) -> int:
        """The first instant after the gap that swallowed `wall`."""
        return next(s.start for s in self._segments_near(wall) if s.gap_from <= wall < s.gap_until)

    def segments_between(self, start: int, end: int) -> Iterator[Segment]:
        """The segments that touch `[start, end]`, in order."""
        segment = self.segment_at(start)
        while segment.start <= end:
            yield segment
            segment = self.segment_at(segment.end)

    def wall_at(self, instant: int) -> int:
        return instant + self.segment_at(instant).offset

    def _segments_near(self, wall: int) -> Iterator[Segment]:
        return self.segments_between(wall - REACH_S, wall + REACH_S)

    def _build(self, start: int, end: int) -> Iterator[Segment]:
        """Segments of `[start, end)`. Block edges cut segments without being a change of offset."""
        changes = self._changes(start - _MARGIN_S, end + _MARGIN_S)
        offset, seen_until, begin, is_change = self._offset(start - _MARGIN_S), -(1 << 62), start, False
        for change, after in [*changes, (None, 0)]:
            stop = end if change is None else min(change, end)
            again_from = 1 << 62 if change is None or after >= offset else change + after
            if stop > begin:
                yield Segment(begin, stop, offset, seen_until, again_from, is_change=is_change)
            if change is None or change >= end:
                return
            seen_until, offset, begin, is_change = change + offset, after, max(change, start), change >= start

    def _changes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Each (instant, new offset) in `(start, end]`."""
        if self.name == "UTC":
            return
        every = _PROBE_S if start < _FAR else _FAR_PROBE_S
        spend((end - start) // every)
        before = self._offset(start)
        for probe in range(start + every, end + every, every):
            probe = min(probe, end)
            after = self._offset(probe)
            if after != before:
                low, high = max(probe - every, start), probe
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == before else (low, middle)
                yield high, after
                before = after

    def _offset(self, instant: int) -> int:
        known = min(max(instant, _FIRST_KNOWN), _LAST_KNOWN)
        offset = datetime.fromtimestamp(known, self._info).utcoffset()
        assert offset is not None
        return offset.days * DAY_S + offset.seconds


@cache
def load_zone(name: str) -> Zone:
    """The zone called `name`; raises `ZoneError` with a suggestion if there is none."""
    check_zone(name)
    return Zone(name)


def check_zone(name: str) -> None:
    """Raise `ZoneError` unless `name` is an IANA zone such as Europe/Berlin."""
    if name == "UTC" or name in _zone_names():
        return
    by_folded = {known.casefold(): known for known in _zone_names()}
    wanted = name.strip().replace(" ", "_").casefold()
    by_city = {folded.rpartition("/")[2]: known for folded, known in sorted(by_folded.items())}
    close = by_folded.get(wanted) or by_city.get(wanted)
    if close is None:
        near = difflib.get_close_matches(wanted, by_folded, n=1, cutoff=0.6)
        near_city = difflib.get_close_matches(wanted, by_city, n=1, cutoff=0.75)
        close = by_folded[near[0]] if near else by_city[near_city[0]] if near_city else None
    hint = f"did you mean {close}?" if close else "use an IANA name such as UTC or Europe/Berlin"
    raise ZoneError(name, hint)


def day_number(year: int, month: int, day: int = 1) -> int:
    """A date as days since the epoch; also after the year 9999, where `date` ends."""
    cycles = max(0, (year - 9600) // 400)  # the calendar repeats every 400 years
    return date(year - 400 * cycles, month, day).toordinal() - _EPOCH_DAY + cycles * 146_097


def date_of(number: int) -> date:
    """The date that is `number` days after the epoch."""
    return date.fromordinal(number + _EPOCH_DAY)


@cache
def _zone_names() -> frozenset[str]:
    # `localtime` is whatever the machine is set to, `Factory` means "not set": neither names a zone.
    return frozenset(zoneinfo.available_timezones() - {"localtime", "Factory"})

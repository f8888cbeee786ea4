"""Schedules put together from others: several at once, and one without the times that exclusions cover."""

from collections.abc import Sequence
from typing import Final

from mainspring.domain.schedule.cron import Cron
from mainspring.domain.schedule.recurrence import SEARCH_MS, Schedule
from mainspring.domain.schedule.zone import DAY_S, Zone

# Whole excluded minutes, hours and days are passed over at once, so this many steps mean that nothing is left.
_MOST_STEPS: Final = 100_000


class Union(Schedule):
    """Every instant at which at least one member fires, once."""

    __slots__ = ("_members",)

    def __init__(self, members: Sequence[Schedule]) -> None:
        self._members = tuple(members)

    def next_after(self, ms: int) -> int | None:
        fires = [fire for member in self._members if (fire := member.next_after(ms)) is not None]
        return min(fires, default=None)

    def prev_before(self, ms: int) -> int | None:
        fires = [fire for member in self._members if (fire := member.prev_before(ms)) is not None]
        return max(fires, default=None)

    def count_between(self, start_ms: int, end_ms: int) -> int:
        """The busiest member is counted; of the others only what no member before them fires, one by one."""
        counts = {member: member.count_between(start_ms, end_ms) for member in self._members}
        busiest, *others = sorted(self._members, key=counts.__getitem__, reverse=True)
        found, before = counts[busiest], [busiest]
        for member in others:
            for fire in member.between(start_ms, end_ms, counts[member]):
                found += not any(other.fires_at(fire) for other in before)
            before.append(member)
        return found

    def describe(self) -> str:
        return "; and ".join(member.describe() for member in self._members)

    def parts(self) -> tuple[Schedule, ...]:
        return tuple(part for member in self._members for part in member.parts())


class Exclusions:
    """Wall times that do not count: those that match a mask, whole days, and single seconds."""

    __slots__ = ("_days", "_masks", "_times", "_zone")

    def __init__(self, zone: Zone, masks: Sequence[Cron], days: frozenset[int], times: frozenset[int]) -> None:
        self._zone, self._masks, self._days, self._times = zone, masks, days, times

    def stretch_at(self, instant: int) -> tuple[int, int]:
        """A stretch `[low, high)` of instants around `instant` that is excluded; empty if it is not."""
        segment = self._zone.segment_at(instant)
        wall = instant + segment.offset
        found = [mask.stretch_at(wall) for mask in self._masks]
        if wall // DAY_S in self._days:
            found.append((wall - wall % DAY_S, wall - wall % DAY_S + DAY_S))
        if wall in self._times:
            found.append((wall, wall + 1))
        low, high = min((low for low, _ in found), default=wall), max((high for _, high in found), default=wall)
        return max(low - segment.offset, segment.start), min(high - segment.offset, segment.end)

    def describe(self) -> str:
        words = [mask.describe().removeprefix("every second ") for mask in self._masks]
        listed = len(self._days) + len(self._times)
        return " and ".join([*words, *([f"{listed} listed time{'' if listed == 1 else 's'}"] if listed else [])])


class Without(Schedule):
    """The fires of a schedule whose wall time no exclusion covers."""

    __slots__ = ("_base", "_exclusions")

    def __init__(self, base: Schedule, exclusions: Exclusions) -> None:
        self._base, self._exclusions = base, exclusions

    def next_after(self, ms: int) -> int | None:
        fire = self._base.next_after(ms)
        for _ in range(_MOST_STEPS):
            if fire is None or fire > ms + SEARCH_MS:
                return None
            low, high = self._exclusions.stretch_at(fire // 1000)
            if low == high:
                return fire
            fire = self._base.next_after(high * 1000 - 1)
        return None

    def prev_before(self, ms: int) -> int | None:
        fire = self._base.prev_before(ms)
        for _ in range(_MOST_STEPS):
            if fire is None or fire < ms - SEARCH_MS:
                return None
            low, high = self._exclusions.stretch_at(fire // 1000)
            if low == high:
                return fire
            fire = self._base.prev_before(low * 1000)
        return None

    def describe(self) -> str:
        return f"{self._base.describe()}, except {self._exclusions.describe()}"

    def parts(self) -> tuple[Schedule, ...]:
        return self._base.parts()

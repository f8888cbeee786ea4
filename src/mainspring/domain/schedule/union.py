"""Schedules put together from others: several at once, and one without the times that exclusions cover."""

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import Final, TypeVar

from mainspring.domain.schedule.budget import spend
from mainspring.domain.schedule.cron import Cron
from mainspring.domain.schedule.day_set import DaySet
from mainspring.domain.schedule.recurrence import SEARCH_MS, Schedule
from mainspring.domain.schedule.zone import DAY_S, Zone

_DESCRIBED: Final = 5
T = TypeVar("T")


def described_together(members: Sequence[T], describe: Callable[[T], str], joint: str = "; and ") -> str:
    """The words for several parts; of many, the first few and the number of the others."""
    words = [describe(member) for member in members[:_DESCRIBED]]
    more = len(members) - len(words)
    return joint.join([*words, *([f"{more} more"] if more else [])])


class Union(Schedule):
    """Every instant at which at least one member fires, once."""

    __slots__ = ("_members",)

    def __init__(self, members: Sequence[Schedule]) -> None:
        self._members = tuple(members)

    def next_after(self, ms: int) -> int | None:
        spend(len(self._members))
        fires = [fire for member in self._members if (fire := member.next_after(ms)) is not None]
        return min(fires, default=None)

    def prev_before(self, ms: int) -> int | None:
        spend(2 * len(self._members))
        fires = [fire for member in self._members if (fire := member.prev_before(ms)) is not None]
        return max(fires, default=None)

    def between(self, start_ms: int, end_ms: int, limit: int) -> list[int]:
        """Merges the members: each is asked once at the start, and again only when it has fired."""
        spend(len(self._members))
        asked = ((member.next_after(start_ms), number) for number, member in enumerate(self._members))
        ahead = [(fire, number) for fire, number in asked if fire is not None]
        heapify(ahead)
        fires: list[int] = []
        while ahead and ahead[0][0] <= end_ms:
            fire, number = ahead[0]
            if not fires or fire != fires[-1]:
                if len(fires) == limit:
                    break
                fires.append(fire)
            spend(2)
            following = self._members[number].next_after(fire)
            heapreplace(ahead, (end_ms + 1 if following is None else following, number))
        return fires

    def count_between(self, start_ms: int, end_ms: int) -> int:
        """The busiest member is counted; of the others only what no member before them fires, one by one."""
        counts = {member: member.count_between(start_ms, end_ms) for member in self._members}
        busiest, *others = sorted(self._members, key=counts.__getitem__, reverse=True)
        found, before = counts[busiest], [busiest]
        for member in others:
            for fire in member.between(start_ms, end_ms, counts[member]):
                spend(len(before))
                found += not any(other.fires_at(fire) for other in before)
            before.append(member)
        return found

    def describe(self) -> str:
        return described_together(self._members, lambda member: member.describe())

    def parts(self) -> tuple[Schedule, ...]:
        return tuple(part for member in self._members for part in member.parts())


class Exclusions:
    """Wall times that do not count: those that match a mask, whole days, and single seconds."""

    __slots__ = ("_all_masks", "_days", "_listed", "_masks", "_times", "_zone")

    def __init__(self, zone: Zone, masks: Sequence[Cron], days: frozenset[int], times: frozenset[int]) -> None:
        self._zone, self._times, self._all_masks, self._listed = zone, times, masks, len(days) + len(times)
        # Masks of whole days are searched like a calendar, so that a run of days is passed over at once.
        self._masks = [mask for mask in masks if not mask.is_whole_day]
        self._days = DaySet(days, [mask.dates for mask in masks if mask.is_whole_day])

    def stretch_at(self, instant: int) -> tuple[int, int]:
        """A stretch `[low, high)` of instants around `instant` that is excluded; empty if it is not."""
        spend(2 + len(self._masks) // 2)
        segment = self._zone.segment_at(instant)
        wall = instant + segment.offset
        low = high = wall
        day = wall // DAY_S
        if self._days and day in self._days:
            before = self._days.prev_day(day, (segment.start + segment.offset) // DAY_S, listed=False)
            after = self._days.next_day(day, (segment.end + segment.offset) // DAY_S, listed=False)
            low = segment.start + segment.offset if before is None else (before + 1) * DAY_S
            high = segment.end + segment.offset if after is None else after * DAY_S
        for mask in self._masks:
            begin, end = mask.stretch_at(wall)
            low, high = min(low, begin), max(high, end)
        if low == high and wall in self._times:
            high = wall + 1
        return max(low - segment.offset, segment.start), min(high - segment.offset, segment.end)

    def describe(self) -> str:
        listed = self._listed
        words = described_together(self._all_masks, lambda mask: mask.describe().removeprefix("every second "), " and ")
        return " and ".join(
            [*([words] if words else []), *([f"{listed} listed time{'' if listed == 1 else 's'}"] if listed else [])]
        )


class Without(Schedule):
    """The fires of a schedule whose wall time no exclusion covers."""

    __slots__ = ("_base", "_exclusions")

    def __init__(self, base: Schedule, exclusions: Exclusions) -> None:
        self._base, self._exclusions = base, exclusions

    def next_after(self, ms: int) -> int | None:
        fire = self._base.next_after(ms)
        while fire is not None and fire <= ms + SEARCH_MS:
            low, high = self._exclusions.stretch_at(fire // 1000)
            if low == high:
                return fire
            fire = self._base.next_after(high * 1000 - 1)
        return None

    def prev_before(self, ms: int) -> int | None:
        fire = self._base.prev_before(ms)
        while fire is not None and fire >= ms - SEARCH_MS:
            low, high = self._exclusions.stretch_at(fire // 1000)
            if low == high:
                return fire
            fire = self._base.prev_before(low * 1000)
        return None

    def describe(self) -> str:
        return f"{self._base.describe()}, except {self._exclusions.describe()}"

    def parts(self) -> tuple[Schedule, ...]:
        return self._base.parts()

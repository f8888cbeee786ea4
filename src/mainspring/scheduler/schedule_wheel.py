"""The schedules of the owned shards, each on the time wheel at its next instant. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.domain.schedule.budget import FIRE_STEPS, TooCostly, steps
from mainspring.domain.schedule.schedule import Interval, Schedule, build_schedule, compile_key
from mainspring.ids import SHARDS
from mainspring.scheduler.wheel import Wheel
from mainspring.store.schedules import ShardSchedule

MISSED_AFTER_MS = 10_000
"""Fires decided later than this were missed, not just late: the misfire policy applies."""
LISTED_FIRES = 100
"""Missed instants of a schedule that are decided one by one; the older ones are recorded as a range."""
MISSED_STEPS = 4 * FIRE_STEPS
"""Steps to list the missed instants of one schedule."""

_BIT = [1 << shard for shard in range(SHARDS)]
"""One object for each shard's bit: a million schedules would otherwise hold a million."""


class WheelSchedule:
    """A schedule with jobs in the owned shards.

    A million distinct ones must fit in memory: intervals are kept compiled, other kinds, which are larger, only as
    their key, and compiled when they are due.
    """

    __slots__ = ("_when", "chained", "jittered", "jobs", "shard_mask")

    def __init__(self, row: ShardSchedule, compiled: Schedule, shard_mask: int) -> None:
        self._when: Schedule | str = compiled if isinstance(compiled, Interval) else row.key
        self.shard_mask = shard_mask  # bit n: shard n has jobs on it
        self.jobs = row.jobs
        self.chained = row.chained
        self.jittered = row.jittered

    @property
    def schedule(self) -> Schedule:
        return compile_key(self._when) if isinstance(self._when, str) else self._when


@dataclass(frozen=True, slots=True)
class UndecidedFires:
    """The undecided instants of one schedule, oldest first: at most LISTED_FIRES, and a range of older ones.

    `older` is an instant before the range and its first and last instant.
    """

    schedule_id: int
    fires: list[int]
    shard_mask: int
    older: tuple[int, int, int] | None = None

    @property
    def first_ms(self) -> int:
        return self.fires[0] if self.older is None else self.older[1]


class ScheduleWheel:
    def __init__(self, now_ms: int) -> None:
        self.wheel = Wheel(now_ms)
        self.blackouts = Blackouts()
        self._schedules: dict[int, WheelSchedule] = {}
        self.too_costly: dict[int, int] = {}  # schedules that exceeded their budget, with the shards to pause them in

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, schedule_id: int) -> WheelSchedule | None:
        return self._schedules.get(schedule_id)

    def add(
        self, rows: Iterable[ShardSchedule], watermarks: Mapping[int, int], *, upto_ms: int
    ) -> list[UndecidedFires]:
        """Add schedules of shards; return what came due between their watermarks and `upto_ms`."""
        behind: dict[int, tuple[int, int]] = {}
        compiled: dict[int, Schedule] = {}
        for row in rows:
            schedule_id, bit = row.schedule_id, _BIT[row.shard]
            start = max(watermarks[row.shard], row.active_from_ms)
            known = self._schedules.get(schedule_id)
            if known is None:
                schedule = compiled[schedule_id] = build_schedule(row.key)
                self._schedules[schedule_id] = WheelSchedule(row, schedule, bit)
            else:
                known.jobs = max(known.jobs, row.jobs) if known.shard_mask & bit else known.jobs + row.jobs
                known.shard_mask |= bit
                known.chained |= row.chained
                known.jittered |= row.jittered
            earliest, mask = behind.get(schedule_id, (start, 0))
            behind[schedule_id] = (min(earliest, start), mask | bit)
        due = []
        for schedule_id, (start, mask) in behind.items():
            schedule = compiled.get(schedule_id) or self._schedules[schedule_id].schedule
            try:
                following = schedule.next_after(start)
                if following is not None and following <= upto_ms:
                    found, following = _undecided(schedule_id, schedule, mask, start, upto_ms)
                    due.append(found)
            except TooCostly:
                self._set_aside(schedule_id)
                continue
            if following is not None and self.wheel.due_of(schedule_id) is None:
                self.wheel.insert(schedule_id, following)
        return due

    def take_due(self, now_ms: int) -> list[UndecidedFires]:
        """Return what is due and move each schedule to its next instant. `put_back` what could not be decided."""
        due = []
        for due_ms, schedule_id in self.wheel.advance(now_ms):
            known = self._schedules[schedule_id]
            found = UndecidedFires(schedule_id, [due_ms], known.shard_mask)
            try:
                schedule = known.schedule
                following = schedule.next_after(due_ms)
                if following is not None and following <= now_ms:
                    found, following = _undecided(schedule_id, schedule, known.shard_mask, due_ms - 1, now_ms)
            except TooCostly:
                self._set_aside(schedule_id)
                following = None
            if following is not None:
                self.wheel.insert(schedule_id, following)
            due.append(found)
        return due

    def _set_aside(self, schedule_id: int) -> None:
        """Keep a schedule off the wheel. The next tick pauses its jobs."""
        self.too_costly[schedule_id] = self._schedules[schedule_id].shard_mask
        self.wheel.cancel(schedule_id)

    def paused(self, schedule_id: int, shards: Iterable[int]) -> None:
        """Forget a schedule in shards where the jobs of a too costly schedule have been paused."""
        for shard in shards:
            self.forget(schedule_id, shard)

    def put_back(self, undecided: Iterable[UndecidedFires]) -> None:
        """Make undecided fires due again at once."""
        for due in undecided:
            next_ms = self.wheel.due_of(due.schedule_id)
            if due.schedule_id in self._schedules and (next_ms is None or due.first_ms < next_ms):
                self.wheel.insert(due.schedule_id, due.first_ms)

    def forget_shards(self, shard_mask: int) -> None:
        """Remove shards that this scheduler no longer owns."""
        if not shard_mask:
            return
        for schedule_id in [i for i, known in self._schedules.items() if known.shard_mask & shard_mask]:
            self._remove(schedule_id, shard_mask)

    def forget(self, schedule_id: int, shard: int) -> None:
        """Remove a schedule that has no job in this shard any more."""
        if schedule_id in self._schedules:
            self._remove(schedule_id, _BIT[shard])

    def _remove(self, schedule_id: int, shard_mask: int) -> None:
        known = self._schedules[schedule_id]
        known.shard_mask &= ~shard_mask
        waiting = self.too_costly.pop(schedule_id, 0) & ~shard_mask
        if waiting:
            self.too_costly[schedule_id] = waiting
        if not known.shard_mask:
            del self._schedules[schedule_id]
            self.wheel.cancel(schedule_id)

    def chained(self, due: Iterable[UndecidedFires]) -> list[int]:
        """Return the schedules with jobs whose executions wait for one another."""
        ids = {one.schedule_id for one in due}
        return sorted(i for i in ids if i in self._schedules and self._schedules[i].chained)

    def count_executions(self, due: Iterable[UndecidedFires]) -> int:
        """Estimate how many executions these fires will create."""
        return sum(
            self._schedules[one.schedule_id].jobs * len(one.fires) for one in due if one.schedule_id in self._schedules
        )


def _undecided(
    schedule_id: int, schedule: Schedule, shard_mask: int, after_ms: int, upto_ms: int
) -> tuple[UndecidedFires, int | None]:
    """The instants of a schedule after `after_ms` up to `upto_ms`, of which there are some, and the next one."""
    with steps(MISSED_STEPS):
        fires = schedule.between(after_ms, upto_ms, LISTED_FIRES + 1)
        first_ms, older = fires[0], None
        if len(fires) > LISTED_FIRES:
            fires, at = [], schedule.prev_before(upto_ms + 1)
            while at is not None and len(fires) < LISTED_FIRES:
                fires.append(at)
                at = schedule.prev_before(at)
            fires.reverse()
            older = None if at is None or at < first_ms else (after_ms, first_ms, at)
        return UndecidedFires(schedule_id, fires, shard_mask, older), schedule.next_after(upto_ms)


def shards_in(shard_mask: int) -> list[int]:
    """Return the shard numbers of a bit mask, in order."""
    found = []
    while shard_mask:
        low = shard_mask & -shard_mask
        found.append(low.bit_length() - 1)
        shard_mask ^= low
    return found

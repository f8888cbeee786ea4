"""What a scheduler knows by heart: the schedules with jobs in its shards, on the wheel. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.domain.schedule.schedule import Interval, Schedule, build_schedule, compile_key
from mainspring.ids import SHARDS
from mainspring.scheduler.wheel import Wheel
from mainspring.store.schedules import ShardSchedule

MISSED_AFTER_MS = 10_000
"""Fires decided later than this were missed, not just late: the misfire policy applies."""
LISTED_FIRES = 100
"""So many missed instants of a schedule are decided one by one; the older ones are recorded as a range."""
MOST_FIRES = 1_000_000

_BIT = [1 << shard for shard in range(SHARDS)]
"""One object for each shard's bit: a million schedules would otherwise hold a million."""


class Known:
    """A schedule that has jobs in our shards.

    A million distinct ones must fit: intervals are kept compiled, the larger rest as its key, compiled when it is due.
    """

    __slots__ = ("_when", "chained", "jittered", "jobs", "shards")

    def __init__(self, row: ShardSchedule, compiled: Schedule, shards: int) -> None:
        self._when: Schedule | str = compiled if isinstance(compiled, Interval) else row.key
        self.shards = shards  # bit n: shard n has jobs on it
        self.jobs = row.jobs
        self.chained = row.chained
        self.jittered = row.jittered

    @property
    def schedule(self) -> Schedule:
        return compile_key(self._when) if isinstance(self._when, str) else self._when


@dataclass(frozen=True, slots=True)
class Group:
    """The undecided instants of one schedule, oldest first."""

    schedule_id: int
    fires: list[int]
    shards: int

    @property
    def listed(self) -> list[int]:
        return self.fires[-LISTED_FIRES:]

    @property
    def older(self) -> list[int]:
        return self.fires[:-LISTED_FIRES]


class Book:
    """Known schedules by id, each on the wheel at its next instant."""

    def __init__(self, now_ms: int) -> None:
        self.wheel = Wheel(now_ms)
        self._known: dict[int, Known] = {}
        self.blackouts = Blackouts()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, rows: Iterable[ShardSchedule], watermarks: Mapping[int, int], *, upto_ms: int) -> list[Group]:
        """Takes in schedules of shards; returns what came due between their watermarks and `upto_ms`."""
        behind: dict[int, tuple[int, int]] = {}
        compiled: dict[int, Schedule] = {}
        for row in rows:
            schedule_id, bit = row.schedule_id, _BIT[row.shard]
            start = max(watermarks[row.shard], row.active_from_ms)
            known = self._known.get(schedule_id)
            if known is None:
                schedule = compiled[schedule_id] = build_schedule(row.key)
                self._known[schedule_id] = Known(row, schedule, bit)
            else:
                known.jobs = max(known.jobs, row.jobs) if known.shards & bit else known.jobs + row.jobs
                known.shards |= bit
                known.chained |= row.chained
                known.jittered |= row.jittered
            earliest, shards = behind.get(schedule_id, (start, 0))
            behind[schedule_id] = (min(earliest, start), shards | bit)
        groups = []
        for schedule_id, (start, shards) in behind.items():
            schedule = compiled.get(schedule_id) or self._known[schedule_id].schedule
            following = schedule.next_after(start)
            if following is not None and following <= upto_ms:
                fires = schedule.between(start, upto_ms, MOST_FIRES)
                groups.append(Group(schedule_id, fires, shards))
                following = schedule.next_after(upto_ms)
            if following is not None and self.wheel.due_of(schedule_id) is None:
                self.wheel.insert(schedule_id, following)
        return groups

    def due(self, now_ms: int) -> list[Group]:
        """What is due; each schedule goes on to its next instant. `put_back` what could not be decided."""
        groups = []
        for due_ms, schedule_id in self.wheel.advance(now_ms):
            known = self._known[schedule_id]
            fires, following = [due_ms], known.schedule.next_after(due_ms)
            if following is not None and following <= now_ms:
                fires = known.schedule.between(due_ms - 1, now_ms, MOST_FIRES)
                following = known.schedule.next_after(now_ms)
            if following is not None:
                self.wheel.insert(schedule_id, following)
            groups.append(Group(schedule_id, fires, known.shards))
        return groups

    def put_back(self, groups: Iterable[Group]) -> None:
        """Not decided: due again at once."""
        for group in groups:
            due = self.wheel.due_of(group.schedule_id)
            if group.schedule_id in self._known and (due is None or group.fires[0] < due):
                self.wheel.insert(group.schedule_id, group.fires[0])

    def forget_shards(self, shards: int) -> None:
        """Shards that are somebody else's now, as a bit set."""
        if not shards:
            return
        for schedule_id in [i for i, known in self._known.items() if known.shards & shards]:
            self._leave(schedule_id, shards)

    def forget(self, schedule_id: int, shard: int) -> None:
        """No job of the shard wants this schedule any more."""
        if schedule_id in self._known:
            self._leave(schedule_id, _BIT[shard])

    def _leave(self, schedule_id: int, shards: int) -> None:
        known = self._known[schedule_id]
        known.shards &= ~shards
        if not known.shards:
            del self._known[schedule_id]
            self.wheel.cancel(schedule_id)

    def chained(self, groups: Iterable[Group]) -> list[int]:
        """Those schedules of the groups that have jobs whose executions wait for one another."""
        ids = {g.schedule_id for g in groups}
        return sorted(i for i in ids if i in self._known and self._known[i].chained)

    def known(self, schedule_id: int) -> Known | None:
        return self._known.get(schedule_id)

    def jobs_of(self, groups: Iterable[Group]) -> int:
        """About how many executions these groups will make."""
        return sum(self._known[g.schedule_id].jobs * len(g.listed) for g in groups if g.schedule_id in self._known)

    def _plan(self, schedule_id: int, after_ms: int) -> None:
        following = self._known[schedule_id].schedule.next_after(after_ms)
        if following is not None:
            self.wheel.insert(schedule_id, following)


def bits(shards: int) -> list[int]:
    """The shard numbers in a bit set, in order."""
    found = []
    while shards:
        low = shards & -shards
        found.append(low.bit_length() - 1)
        shards ^= low
    return found

"""Fires schedules: one transaction decides every due instant of a set of shards.

The guarantee rests on the order of statements. Locking the shard rows first makes every later statement see what was
committed before; an owner whose epoch has moved gets no rows and can change nothing. Edits that the wheel has not seen
are loaded before anything is decided, so the watermark never passes an instant of an unknown schedule. The watermark
moves last, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mainspring.clock import instant
from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.scheduler.delayed_fires import split_delayed
from mainspring.scheduler.schedule_wheel import MISSED_AFTER_MS, ScheduleWheel, UndecidedFires, shards_in
from mainspring.store import blackouts, fires, needs, overlaps, pauses, schedules, shards
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.shards import LockedShard

log = structlog.get_logger()


@dataclass(slots=True)
class OwnedShard:
    """A shard this scheduler owns."""

    epoch: int
    loaded: int  # the value of shards.changes up to which the wheel has loaded edits


@dataclass(slots=True)
class TickResult:
    """What a tick did, for metrics and for the loop."""

    queued: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    refused: bool = False  # by the lock of an instant: the shards count as lost until a beat has read their rows
    now_ms: int = 0
    wait_ms: int | None = None
    needing: list[UUID] = field(default_factory=list)
    undecided: list[UndecidedFires] = field(default_factory=list)
    abandoned: list[tuple[int, int]] = field(default_factory=list)

    def add(self, result: fires.FireResult) -> None:
        self.queued += result.queued
        self.needing += result.needing
        if result.wait_ms is not None:
            self.wait_ms = min(result.wait_ms, self.wait_ms or result.wait_ms)
        for reason, n in result.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n


async def tick(
    database: Database,
    wheel: ScheduleWheel,
    *,
    owner: UUID,
    owned: dict[int, OwnedShard],
    wanted: Sequence[int],
    due: Sequence[UndecidedFires],
    until_ms: int,
) -> TickResult:
    """Decide fires up to `until_ms`, never beyond database time, for the wanted shards that are still owned."""
    try:
        return await _tick(database, wheel, owner, owned, wanted, due, until_ms, check_ids=False)
    except Taken:  # the second safety net: an id that the watermark should have ruled out
        return await _tick(database, wheel, owner, owned, wanted, due, until_ms, check_ids=True)


async def _tick(
    database: Database,
    wheel: ScheduleWheel,
    owner: UUID,
    owned: dict[int, OwnedShard],
    wanted: Sequence[int],
    due: Sequence[UndecidedFires],
    until_ms: int,
    *,
    check_ids: bool,
) -> TickResult:
    result = TickResult()
    async with database.hot() as connection, connection.transaction():
        locked = await shards.lock_shards(
            connection, owner=owner, shards=wanted, epochs=[owned[s].epoch for s in wanted]
        )
        result.lost = set(wanted) - {s.shard for s in locked}
        if not locked:
            return result
        now_ms = locked[0].now_ms
        upto_ms = min(until_ms, now_ms)
        result.now_ms = now_ms
        await _load_blackouts(connection, wheel, locked)
        edited = await _load_edits(connection, wheel, owned, locked, upto_ms)
        ready, result.undecided = _split_early([*due, *edited], upto_ms)
        watermarks = {s.shard: s.watermark_ms for s in locked}
        if ready:
            decision = Decision(connection, wheel, ready, watermarks, now_ms, result, check_ids)
            await decision.make()
        paused = await _pause_too_costly(connection, wheel, owner, list(watermarks))
        await shards.advance_shards(connection, owner=owner, shards=list(watermarks), to_ms=upto_ms)
    for schedule_id in paused:
        wheel.paused(schedule_id, watermarks)
    for shard in locked:
        owned[shard.shard].loaded = shard.changes
    for schedule_id, shard_number in result.abandoned:
        wheel.forget(schedule_id, shard_number)
    return result


async def _load_blackouts(connection: Connection, wheel: ScheduleWheel, locked: Sequence[LockedShard]) -> None:
    """Reload blackouts if the locked rows show an edit: every edit of blackouts bumps every shard."""
    version = max(shard.blackouts for shard in locked)
    if version > wheel.blackouts.version:
        wheel.blackouts = Blackouts(await blackouts.open_blackouts(connection, tenant=None), version=version)


async def _load_edits(
    connection: Connection,
    wheel: ScheduleWheel,
    owned: dict[int, OwnedShard],
    locked: Sequence[LockedShard],
    upto_ms: int,
) -> list[UndecidedFires]:
    stale = [s for s in locked if s.changes > owned[s.shard].loaded]
    if not stale:
        return []
    rows = await schedules.changed_schedules(
        connection, shards=[s.shard for s in stale], loaded=[owned[s.shard].loaded for s in stale]
    )
    return wheel.add(rows, {s.shard: s.watermark_ms for s in stale}, upto_ms=upto_ms)


async def _pause_too_costly(
    connection: Connection, wheel: ScheduleWheel, owner: UUID, mine: Sequence[int]
) -> list[int]:
    """Pause the jobs in locked shards whose schedule has exceeded its budget; return the schedules."""
    mask = sum(1 << shard for shard in mine)
    found = [schedule_id for schedule_id, of in wheel.too_costly.items() if of & mask]
    if found:
        for job in await pauses.pause_too_costly(connection, schedule_ids=found, shards=mine, owner=owner):
            log.warning("job.quarantined", job=job.name, tenant=job.tenant)
    return found


def _split_early(due: Sequence[UndecidedFires], upto_ms: int) -> tuple[list[UndecidedFires], list[UndecidedFires]]:
    """Return what is due by database time, and what this machine's clock was too early for."""
    ready, early = [], []
    for one in due:
        if one.fires[-1] <= upto_ms:
            ready.append(one)
            continue
        past = [at for at in one.fires if at <= upto_ms]
        rest = one.fires[len(past) :]
        if past:
            ready.append(UndecidedFires(one.schedule_id, past, one.shard_mask, one.older))
        if rest:
            early.append(UndecidedFires(one.schedule_id, rest, one.shard_mask))
    return ready, early


@dataclass(slots=True)
class Decision:
    """The statements that decide due fires, inside the transaction that has locked the shards."""

    connection: Connection
    wheel: ScheduleWheel
    due: Sequence[UndecidedFires]
    watermarks: Mapping[int, int]
    now_ms: int
    result: TickResult
    check_ids: bool

    async def make(self) -> None:
        mine, chained = list(self.watermarks), self.wheel.chained(self.due)
        if chained:
            await overlaps.lock_chained(self.connection, schedule_ids=chained, shards=mine)
        for one in self.due:
            if one.older:
                await self._skip_older(one)
        seen: set[tuple[int, int, int]] = set()
        # One statement per generation: each must see what the one before has queued, for the overlap policy.
        for generation in range(max(len(one.fires) for one in self.due)):
            prompt, delayed = split_delayed(self.wheel, self._generation(generation, seen))
            if prompt:
                result = await fires.fire(self.connection, due=prompt, now_ms=self.now_ms, check_ids=self.check_ids)
                self.result.add(result)
            if delayed.due:
                result = await fires.fire_delayed(
                    self.connection,
                    due=delayed.due,
                    gaps_ms=delayed.gaps_ms,
                    blackouts=delayed.blackouts,
                    now_ms=self.now_ms,
                )
                self.result.add(result)
            if chained:
                await self._replace_running(chained, mine)
        if self.result.needing:
            await needs.release(self.connection, children=self.result.needing)
        if seen and not self.result.queued and not self.result.skipped:
            pairs = [fires.DueFire(schedule_id, shard, 0) for schedule_id, shard in {(i, s) for i, s, _ in seen}]
            self.result.abandoned = await fires.abandoned(self.connection, due=pairs, now_ms=self.now_ms)

    def _generation(self, generation: int, seen: set[tuple[int, int, int]]) -> list[fires.DueFire]:
        """Return the n-th instant of each schedule, once for each shard that has not decided it."""
        found = []
        for one in self.due:
            if generation >= len(one.fires):
                continue
            at = one.fires[generation]
            newer = len(one.fires) - 1 - generation if self.now_ms - one.first_ms > MISSED_AFTER_MS else fires.ON_TIME
            for shard in shards_in(one.shard_mask):
                key = (one.schedule_id, shard, at)
                if at > self.watermarks.get(shard, at) and key not in seen:
                    seen.add(key)
                    found.append(fires.DueFire(one.schedule_id, shard, at, newer))
        return found

    async def _skip_older(self, due: UndecidedFires) -> None:
        """Record the instants that are too old to list. Shards with different watermarks missed different ones."""
        known = self.wheel.get(due.schedule_id)
        if due.older is None or known is None:
            return
        after_ms, _, last_ms = due.older
        missed: dict[int, list[int]] = {}
        for shard in shards_in(due.shard_mask):
            if shard in self.watermarks:
                missed.setdefault(max(self.watermarks[shard], after_ms), []).append(shard)
        for start_ms, shards_ in missed.items():
            await fires.skip_range(
                self.connection,
                schedule_id=due.schedule_id,
                schedule=known.schedule,
                after_ms=start_ms,
                last_ms=last_ms,
                shards=shards_,
                now_ms=self.now_ms,
            )

    async def _replace_running(self, chained: list[int], mine: list[int]) -> None:
        replaced = await overlaps.replace_running(
            self.connection, schedule_ids=chained, shards=mine, now=instant(self.now_ms)
        )
        if replaced:
            self.result.needing += await overlaps.queue_blocked(self.connection, job_ids=replaced)

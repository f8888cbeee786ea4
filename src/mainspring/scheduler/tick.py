"""Firing: one transaction decides every due instant of a set of shards.

The order of statements carries the promise. Locking the shard rows first makes every later statement see
what was committed before; an owner whose epoch has moved gets no rows and can change nothing. Edits that
the book has not seen are loaded before anything is decided, so the watermark never passes an instant of a
schedule the wheel did not know. The watermark moves last, in the same transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.clock import instant
from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.scheduler.book import MISSED_AFTER_MS, Book, Group, bits
from mainspring.scheduler.later import sort_out
from mainspring.store import blackouts, fires, needs, overlaps, schedules, shards
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.shards import LockedShard


@dataclass(slots=True)
class Holding:
    """A shard this scheduler owns."""

    epoch: int
    loaded: int  # shards.changes as far as the book knows


@dataclass(slots=True)
class Ticked:
    """What a tick did, for metrics and for the loop."""

    queued: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    now_ms: int = 0
    wait_ms: int | None = None
    needing: list[UUID] = field(default_factory=list)
    undecided: list[Group] = field(default_factory=list)
    abandoned: list[tuple[int, int]] = field(default_factory=list)

    def add(self, decided: fires.Decided) -> None:
        self.queued += decided.queued
        self.needing += decided.needing
        if decided.wait_ms is not None:
            self.wait_ms = min(decided.wait_ms, self.wait_ms or decided.wait_ms)
        for reason, n in (decided.skipped or {}).items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n


async def tick(
    database: Database,
    book: Book,
    *,
    owner: UUID,
    holdings: dict[int, Holding],
    wanted: Sequence[int],
    groups: Sequence[Group],
    until_ms: int,
) -> Ticked:
    """Decides the groups' instants up to `until_ms`, never beyond database time, for those shards still ours."""
    try:
        return await _tick(database, book, owner, holdings, wanted, groups, until_ms, careful=False)
    except Taken:  # the second net: an id that the watermark should have ruled out
        return await _tick(database, book, owner, holdings, wanted, groups, until_ms, careful=True)


async def _tick(
    database: Database,
    book: Book,
    owner: UUID,
    holdings: dict[int, Holding],
    wanted: Sequence[int],
    groups: Sequence[Group],
    until_ms: int,
    *,
    careful: bool,
) -> Ticked:
    ticked = Ticked()
    async with database.hot() as connection, connection.transaction():
        locked = await shards.lock_shards(
            connection, owner=owner, shards=wanted, epochs=[holdings[s].epoch for s in wanted]
        )
        ticked.lost = set(wanted) - {s.shard for s in locked}
        if not locked:
            return ticked
        now_ms = locked[0].now_ms
        upto_ms = min(until_ms, now_ms)
        ticked.now_ms = now_ms
        await _load_blackouts(connection, book, locked)
        news = await _load_edits(connection, book, holdings, locked, upto_ms)
        ready, ticked.undecided = _split([*groups, *news], upto_ms)
        watermarks = {s.shard: s.watermark_ms for s in locked}
        if ready:
            decision = Decision(connection, book, ready, watermarks, now_ms, ticked, careful)
            await decision.make()
        await shards.advance_shards(connection, owner=owner, shards=list(watermarks), to_ms=upto_ms)
    for shard in locked:
        holdings[shard.shard].loaded = shard.changes
    for schedule_id, shard_number in ticked.abandoned:
        book.forget(schedule_id, shard_number)
    return ticked


async def _load_blackouts(connection: Connection, book: Book, locked: Sequence[LockedShard]) -> None:
    """Whoever edits blackouts bumps every shard: one look at the held rows says whether ours are the latest."""
    version = max(shard.blackouts for shard in locked)
    if version > book.blackouts.version:
        book.blackouts = Blackouts(await blackouts.open_blackouts(connection, tenant=None), version=version)


async def _load_edits(
    connection: Connection, book: Book, holdings: dict[int, Holding], locked: Sequence[LockedShard], upto_ms: int
) -> list[Group]:
    stale = [s for s in locked if s.changes > holdings[s.shard].loaded]
    if not stale:
        return []
    rows = await schedules.changed_schedules(
        connection, shards=[s.shard for s in stale], loaded=[holdings[s.shard].loaded for s in stale]
    )
    return book.learn(rows, {s.shard: s.watermark_ms for s in stale}, upto_ms=upto_ms)


def _split(groups: Sequence[Group], upto_ms: int) -> tuple[list[Group], list[Group]]:
    """What is due by database time, and what this machine's clock was too early for."""
    ready, early = [], []
    for group in groups:
        if group.fires[-1] <= upto_ms:
            ready.append(group)
            continue
        due = [at for at in group.fires if at <= upto_ms]
        rest = group.fires[len(due) :]
        if due:
            ready.append(Group(group.schedule_id, due, group.shards))
        if rest:
            early.append(Group(group.schedule_id, rest, group.shards))
    return ready, early


@dataclass(slots=True)
class Decision:
    """The statements that decide what is ready, inside the transaction that holds the shards' rows."""

    connection: Connection
    book: Book
    groups: Sequence[Group]
    watermarks: Mapping[int, int]
    now_ms: int
    ticked: Ticked
    careful: bool

    async def make(self) -> None:
        mine, chained = list(self.watermarks), self.book.chained(self.groups)
        if chained:
            await overlaps.lock_chained(self.connection, schedule_ids=chained, shards=mine)
        for group in self.groups:
            if group.older:
                await self._skip_older(group)
        seen: set[tuple[int, int, int]] = set()
        # One statement per generation: each must see what the one before has queued, for the overlap policy.
        for generation in range(max(len(group.listed) for group in self.groups)):
            due = self._due(generation, seen)
            prompt, later = sort_out(self.book, due)
            if prompt:
                decided = await fires.fire(self.connection, due=prompt, now_ms=self.now_ms, careful=self.careful)
                self.ticked.add(decided)
            if later.due:
                decided = await fires.fire_later(
                    self.connection, due=later.due, gaps_ms=later.gaps_ms, holds=later.holds, now_ms=self.now_ms
                )
                self.ticked.add(decided)
            if chained:
                await self._replace(chained, mine)
        if self.ticked.needing:
            await needs.release(self.connection, children=self.ticked.needing)
        if seen and not self.ticked.queued and not self.ticked.skipped:
            pairs = [fires.Due(schedule_id, shard, 0) for schedule_id, shard in {(i, s) for i, s, _ in seen}]
            self.ticked.abandoned = await fires.abandoned(self.connection, due=pairs, now_ms=self.now_ms)

    def _due(self, generation: int, seen: set[tuple[int, int, int]]) -> list[fires.Due]:
        """That instant of each group, once for each shard that has not decided it."""
        found = []
        for group in self.groups:
            listed = group.listed
            if generation >= len(listed):
                continue
            at = listed[generation]
            newer = len(listed) - 1 - generation if self.now_ms - group.fires[0] > MISSED_AFTER_MS else fires.ON_TIME
            for shard in bits(group.shards):
                pair = (group.schedule_id, shard, at)
                if at > self.watermarks.get(shard, at) and pair not in seen:
                    seen.add(pair)
                    found.append(fires.Due(group.schedule_id, shard, at, newer))
        return found

    async def _skip_older(self, group: Group) -> None:
        """Shards that were decided up to different instants have missed different ones."""
        missed: dict[int, list[int]] = {}
        for shard in bits(group.shards):
            if shard in self.watermarks:
                missed.setdefault(bisect_right(group.older, self.watermarks[shard]), []).append(shard)
        for start, shards_ in missed.items():
            if older := group.older[start:]:
                await fires.skip_range(
                    self.connection, schedule_id=group.schedule_id, fires=older, shards=shards_, now_ms=self.now_ms
                )

    async def _replace(self, chained: list[int], mine: list[int]) -> None:
        replaced = await overlaps.replace_running(
            self.connection, schedule_ids=chained, shards=mine, now=instant(self.now_ms)
        )
        if replaced:
            await overlaps.release_blocked(self.connection, job_ids=replaced)

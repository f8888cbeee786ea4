"""Firing: one transaction decides every due instant of a set of shards.

The order of statements carries the promise. Locking the shard rows first makes every later statement see
what was committed before; an owner whose epoch has moved gets no rows and can change nothing. Edits that
the book has not seen are loaded before anything is decided, so the watermark never passes an instant of a
schedule the wheel did not know. The watermark moves last, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.clock import instant
from mainspring.scheduler.book import MISSED_AFTER_MS, Book, Group
from mainspring.store import chains, fires, schedules, shards
from mainspring.store.db import Connection, Database
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
    undecided: list[Group] = field(default_factory=list)

    def add(self, decided: fires.Decided) -> None:
        self.queued += decided.queued
        for reason, n in (decided.skipped or {}).items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n


async def tick(
    database: Database, book: Book, *, owner: UUID, holdings: dict[int, Holding], wanted: Sequence[int],
    groups: Sequence[Group], until_ms: int,
) -> Ticked:  # fmt: skip
    """Decides the groups' instants up to `until_ms`, never beyond database time, for those shards still ours."""
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
        news = await _load_edits(connection, book, holdings, locked, upto_ms)
        ready, ticked.undecided = _split([*groups, *news], upto_ms)
        mine = [s.shard for s in locked]
        if ready:
            await _decide(connection, ready, mine, now_ms, ticked, book.chained(ready))
        await shards.advance_shards(connection, owner=owner, shards=mine, to_ms=upto_ms)
    for shard in locked:
        holdings[shard.shard].loaded = shard.changes
    return ticked


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
        due = [at for at in group.fires if at <= upto_ms]
        rest = group.fires[len(due) :]
        if due:
            ready.append(Group(group.schedule_id, due, group.shards))
        if rest:
            early.append(Group(group.schedule_id, rest, group.shards))
    return ready, early


async def _decide(
    connection: Connection,
    groups: Sequence[Group],
    mine: Sequence[int],
    now_ms: int,
    ticked: Ticked,
    chained: list[int],
) -> None:
    if chained:
        await chains.lock_chained(connection, schedule_ids=chained, shards=mine)
    for group in groups:
        if group.older:
            await fires.skip_range(
                connection, schedule_id=group.schedule_id, last_ms=group.older[-1], count=len(group.older),
                shards=mine, now_ms=now_ms,
            )  # fmt: skip
    # One statement per generation: each must see what the one before has queued, for the overlap policy.
    for generation in range(max(len(group.listed) for group in groups)):
        due = [_due(group, generation, now_ms) for group in groups if generation < len(group.listed)]
        ticked.add(await fires.fire(connection, due=due, shards=mine, now_ms=now_ms))
        if chained:
            replaced = await chains.replace_running(connection, schedule_ids=chained, shards=mine, now=instant(now_ms))
            if replaced:
                await chains.release_blocked(connection, job_ids=replaced)


def _due(group: Group, generation: int, now_ms: int) -> fires.Due:
    listed = group.listed
    missed = now_ms - group.fires[0] > MISSED_AFTER_MS
    newer = len(listed) - 1 - generation if missed else fires.ON_TIME
    return fires.Due(group.schedule_id, listed[generation], newer)

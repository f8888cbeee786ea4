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
from mainspring.domain.blackouts import Blackouts
from mainspring.scheduler.book import MISSED_AFTER_MS, Book, Group
from mainspring.scheduler.later import sort_out
from mainspring.store import blackouts, chains, fires, schedules, shards
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
    wait_ms: int | None = None
    undecided: list[Group] = field(default_factory=list)

    def add(self, decided: fires.Decided) -> None:
        self.queued += decided.queued
        if decided.wait_ms is not None:
            self.wait_ms = min(decided.wait_ms, self.wait_ms or decided.wait_ms)
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
        await _load_blackouts(connection, book, locked)
        news = await _load_edits(connection, book, holdings, locked, upto_ms)
        ready, ticked.undecided = _split([*groups, *news], upto_ms)
        mine = [s.shard for s in locked]
        if ready:
            await _decide(connection, book, ready, mine, now_ms, ticked)
        await shards.advance_shards(connection, owner=owner, shards=mine, to_ms=upto_ms)
    for shard in locked:
        holdings[shard.shard].loaded = shard.changes
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
        due = [at for at in group.fires if at <= upto_ms]
        rest = group.fires[len(due) :]
        if due:
            ready.append(Group(group.schedule_id, due, group.shards))
        if rest:
            early.append(Group(group.schedule_id, rest, group.shards))
    return ready, early


async def _decide(
    connection: Connection,
    book: Book,
    groups: Sequence[Group],
    mine: Sequence[int],
    now_ms: int,
    ticked: Ticked,
) -> None:
    chained = book.chained(groups)
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
        prompt, later = sort_out(book, due)
        if prompt:
            ticked.add(await fires.fire(connection, due=prompt, shards=mine, now_ms=now_ms))
        if later.due:
            ticked.add(
                await fires.fire_later(
                    connection, due=later.due, gaps_ms=later.gaps_ms, holds=later.holds, shards=mine, now_ms=now_ms
                )
            )
        if chained:
            replaced = await chains.replace_running(connection, schedule_ids=chained, shards=mine, now=instant(now_ms))
            if replaced:
                await chains.release_blocked(connection, job_ids=replaced)


def _due(group: Group, generation: int, now_ms: int) -> fires.Due:
    listed = group.listed
    missed = now_ms - group.fires[0] > MISSED_AFTER_MS
    newer = len(listed) - 1 - generation if missed else fires.ON_TIME
    return fires.Due(group.schedule_id, listed[generation], newer)

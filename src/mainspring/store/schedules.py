"""Interned schedules: each distinct *when* once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from mainspring.clock import millis
from mainspring.store.db import Connection
from mainspring.store.queries import q

PORTION = 2_000


class ShardSchedule(NamedTuple):
    """A schedule with active jobs in a shard; none of them wants fires at or before `active_from_ms`."""

    schedule_id: int
    shard: int
    key: str
    jobs: int
    active_from_ms: int
    chained: bool  # some of the jobs have executions that wait for one another


async def intern_schedule(connection: Connection, *, key: str) -> int:
    while True:
        found = await connection.fetchval(q("intern_schedule"), key)
        if found is not None:  # None: somebody else's insert committed between our two looks
            return int(found)


async def shard_schedules(connection: Connection, *, shards: Sequence[int]) -> AsyncIterator[list[ShardSchedule]]:
    """In portions, so that whoever works on a million of them keeps its other promises meanwhile."""
    async with connection.transaction():
        await connection.fetchval(q("more_memory"))
        cursor = await connection.cursor(q("shard_schedules"), shards)
        while rows := await cursor.fetch(PORTION):
            yield _rows(rows)


async def changed_schedules(
    connection: Connection, *, shards: Sequence[int], loaded: Sequence[int]
) -> list[ShardSchedule]:
    return _rows(await connection.fetch(q("changed_schedules"), shards, loaded))


def _rows(rows: Sequence[Any]) -> list[ShardSchedule]:
    return [
        ShardSchedule(schedule_id, shard, key, jobs, millis(active_from), chained)
        for schedule_id, shard, key, jobs, active_from, chained in rows
    ]

"""Interned schedules: each distinct *when* once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple

from mainspring.store.db import Connection
from mainspring.store.queries import q

PORTION = 2_000
LONGEST = 2000
"""Characters of a key that its index holds; of a longer one it holds the digest. Keys are ASCII but for names."""


class ShardSchedule(NamedTuple):
    """A schedule with active jobs in a shard; none of them wants fires at or before `active_from_ms`."""

    schedule_id: int
    shard: int
    key: str
    jobs: int
    active_from_ms: int
    chained: bool  # some of the jobs have executions that wait for one another
    jittered: bool = False  # some of the jobs start later than they fire


async def intern_schedule(connection: Connection, *, key: str) -> int:
    while True:
        short, content = (key, None) if len(key) <= LONGEST else (_digest(key), key)
        found = await connection.fetchval(q("intern_schedule"), short, content)
        if found is not None:  # None: somebody else's insert committed between our two looks
            return int(found)


async def schedule_keys(connection: Connection, *, schedule_ids: Collection[int]) -> dict[int, str]:
    return {r["schedule_id"]: r["key"] for r in await connection.fetch(q("schedule_keys"), list(schedule_ids))}


async def shard_schedules(connection: Connection, *, shards: Sequence[int]) -> AsyncIterator[list[ShardSchedule]]:
    """In portions, so that whoever works on a million of them keeps its other promises meanwhile."""
    async with connection.transaction():
        await connection.fetchval(q("more_memory"))
        cursor = await connection.cursor(q("shard_schedules"), shards)
        coming = asyncio.ensure_future(cursor.fetch(PORTION))
        try:
            while rows := await coming:
                coming = asyncio.ensure_future(cursor.fetch(PORTION))
                await asyncio.sleep(0)  # sent: PostgreSQL finds the next while we work on these
                yield [ShardSchedule(*row) for row in rows]
        finally:
            coming.cancel()
            await asyncio.wait([coming])


async def changed_schedules(
    connection: Connection, *, shards: Sequence[int], loaded: Sequence[int]
) -> list[ShardSchedule]:
    return [ShardSchedule(*row) for row in await connection.fetch(q("changed_schedules"), shards, loaded)]


def _digest(key: str) -> str:
    return f'{{"sha256":"{hashlib.sha256(key.encode()).hexdigest()}"}}'

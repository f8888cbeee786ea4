"""Interned schedules: each distinct schedule is stored once and shared by its jobs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple

from mainspring.store.db import Connection
from mainspring.store.queries import q

FETCH_ROWS = 2_000
MAX_INDEXED_KEY = 2000
"""Longer keys are indexed by their digest. In characters: keys are ASCII except for names."""


class ShardSchedule(NamedTuple):
    """A schedule with active jobs in a shard; none of them fires at or before `active_from_ms`."""

    schedule_id: int
    shard: int
    key: str
    jobs: int
    active_from_ms: int
    chained: bool  # some jobs have an overlap policy under which executions wait for one another
    jittered: bool = False  # some jobs have jitter, a window or needs, so they start later than they fire


async def intern_schedule(connection: Connection, *, key: str) -> int:
    while True:
        short, content = (key, None) if len(key) <= MAX_INDEXED_KEY else (_digest(key), key)
        found = await connection.fetchval(q("intern_schedule"), short, content)
        if found is not None:  # None: a concurrent insert committed between the two parts of the query
            return int(found)


async def intern_schedules(connection: Connection, *, keys: Collection[str]) -> dict[str, int]:
    """Return the id of each schedule, inserting those that do not exist yet."""
    by_short = {key if len(key) <= MAX_INDEXED_KEY else _digest(key): key for key in keys}
    shorts = sorted(by_short)
    found: dict[str, int] = {}
    while len(found) < len(shorts):  # fewer: a concurrent insert committed in between
        contents = [None if by_short[short] == short else by_short[short] for short in shorts]
        await connection.execute(q("touch_schedules"), shorts, contents)
        found = {r["key"]: r["schedule_id"] for r in await connection.fetch(q("find_schedules"), shorts)}
    return {by_short[short]: schedule_id for short, schedule_id in found.items()}


async def schedule_keys(connection: Connection, *, schedule_ids: Collection[int]) -> dict[int, str]:
    return {r["schedule_id"]: r["key"] for r in await connection.fetch(q("schedule_keys"), list(schedule_ids))}


async def shard_schedules(connection: Connection, *, shards: Sequence[int]) -> AsyncIterator[list[ShardSchedule]]:
    """Yield schedules in portions, so that a caller with a million of them can renew its leases meanwhile."""
    async with connection.transaction():
        await connection.fetchval(q("more_memory"))
        statement = await connection.prepare(q("shard_schedules"), name="")  # a pooler would keep one with a name
        cursor = await statement.cursor(shards)
        fetching = asyncio.ensure_future(cursor.fetch(FETCH_ROWS))
        try:
            while rows := await fetching:
                fetching = asyncio.ensure_future(cursor.fetch(FETCH_ROWS))
                # Let the request go out: PostgreSQL reads ahead while the caller works on this portion.
                await asyncio.sleep(0)
                yield [ShardSchedule(*row) for row in rows]
        finally:
            fetching.cancel()
            await asyncio.wait([fetching])


async def changed_schedules(
    connection: Connection, *, shards: Sequence[int], loaded: Sequence[int]
) -> list[ShardSchedule]:
    return [ShardSchedule(*row) for row in await connection.fetch(q("changed_schedules"), shards, loaded)]


def _digest(key: str) -> str:
    return f'{{"sha256":"{hashlib.sha256(key.encode()).hexdigest()}"}}'

"""Interned schedules: each distinct *when* once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mainspring.clock import millis
from mainspring.store.db import Connection
from mainspring.store.queries import q

LONGEST = 2000
"""Characters of a key that its index holds; of a longer one it holds the digest. Keys are ASCII but for names."""


@dataclass(frozen=True, slots=True)
class ShardSchedule:
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


async def shard_schedules(connection: Connection, *, shards: Sequence[int]) -> list[ShardSchedule]:
    return _rows(await connection.fetch(q("shard_schedules"), shards))


async def changed_schedules(
    connection: Connection, *, shards: Sequence[int], loaded: Sequence[int]
) -> list[ShardSchedule]:
    return _rows(await connection.fetch(q("changed_schedules"), shards, loaded))


def _rows(rows: list[object]) -> list[ShardSchedule]:
    return [
        ShardSchedule(
            r["schedule_id"], r["shard"], r["key"], r["jobs"], millis(r["active_from"]), r["chained"], r["jittered"]  # type: ignore[index]
        )
        for r in rows
    ]  # fmt: skip


def _digest(key: str) -> str:
    return f'{{"sha256":"{hashlib.sha256(key.encode()).hexdigest()}"}}'

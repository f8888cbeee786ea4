"""Interned schedules: each distinct *when* once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.clock import millis
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class ShardSchedule:
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


async def shard_schedules(connection: Connection, *, shards: Sequence[int]) -> list[ShardSchedule]:
    return _rows(await connection.fetch(q("shard_schedules"), shards))


async def changed_schedules(
    connection: Connection, *, shards: Sequence[int], loaded: Sequence[int]
) -> list[ShardSchedule]:
    return _rows(await connection.fetch(q("changed_schedules"), shards, loaded))


def _rows(rows: list[object]) -> list[ShardSchedule]:
    return [
        ShardSchedule(r["schedule_id"], r["shard"], r["key"], r["jobs"], millis(r["active_from"]), r["chained"])  # type: ignore[index]
        for r in rows
    ]

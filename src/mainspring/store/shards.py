"""Shards: who decides for which jobs, and how far they have got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.clock import instant, millis
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Shard:
    shard: int
    epoch: int
    watermark_ms: int
    changes: int


@dataclass(frozen=True, slots=True)
class LockedShard:
    shard: int
    watermark_ms: int
    changes: int
    blackouts: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ShardLease:
    shard: int
    owner: UUID | None
    epoch: int
    lease_expires_at: datetime | None
    watermark: datetime
    now: datetime


async def acquire_shards(connection: Connection, *, owner: UUID, lease_s: float) -> list[Shard]:
    rows = await connection.fetch(q("acquire_shards"), owner, lease_s)
    return [Shard(r["shard"], r["epoch"], millis(r["watermark"]), r["changes"]) for r in rows]


async def renew_shards(connection: Connection, *, owner: UUID, lease_s: float) -> dict[int, tuple[int, int]]:
    """Epoch and changes by shard, of those that are still ours."""
    rows = await connection.fetch(q("renew_shards"), owner, lease_s)
    return {r["shard"]: (r["epoch"], r["changes"]) for r in rows}


async def release_shards(connection: Connection, *, owner: UUID) -> None:
    await connection.execute(q("release_shards"), owner)


async def lock_shards(
    connection: Connection, *, owner: UUID, shards: Sequence[int], epochs: Sequence[int]
) -> list[LockedShard]:
    rows = await connection.fetch(q("lock_shards"), owner, shards, epochs)
    # Rounded down: a fire must never be decided before its instant.
    return [
        LockedShard(r["shard"], millis(r["watermark"]), r["changes"], r["blackouts"], int(r["now"].timestamp() * 1000))
        for r in rows
    ]


async def advance_shards(connection: Connection, *, owner: UUID, shards: Sequence[int], to_ms: int) -> None:
    await connection.execute(q("advance_shards"), owner, shards, instant(to_ms))


async def bump_shard(connection: Connection, *, shard: int) -> tuple[int, int]:
    """The shard's new number of changes, and its watermark."""
    row = await connection.fetchrow(q("bump_shard"), shard)
    assert row is not None, f"shard {shard} does not exist"
    return row["changes"], millis(row["watermark"])


async def bump_shards(connection: Connection) -> dict[int, int]:
    """The watermark of every shard; all of them are held until the end of the transaction."""
    return {r["shard"]: millis(r["watermark"]) for r in await connection.fetch(q("bump_shards"))}


async def bump_blackouts(connection: Connection) -> None:
    await connection.execute(q("bump_blackouts"))


async def list_shards(connection: Connection) -> list[ShardLease]:
    rows = await connection.fetch(q("list_shards"))
    return [
        ShardLease(r["shard"], r["owner"], r["epoch"], r["lease_expires_at"], r["watermark"], r["now"]) for r in rows
    ]

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
class Scheduler:
    """A scheduler process among its peers."""

    scheduler_id: UUID
    name: str
    host: str
    version: str


@dataclass(frozen=True, slots=True)
class Decided:
    """Up to `upto_ms` everything is decided for these shards: (shard, epoch, changes)."""

    upto_ms: int
    shards: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as somebody saw it; `held` says that its owner lives."""

    shard: int
    owner: UUID | None
    epoch: int
    watermark_ms: int
    changes: int
    held: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """What a beat saw: database time, the peers that take shards, and every shard."""

    now_ms: float
    peers: frozenset[UUID]
    shards: list[Shard]


@dataclass(frozen=True, slots=True)
class LockedShard:
    shard: int
    watermark_ms: int
    changes: int
    blackouts: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ShardLease:
    """`owner_name` and `seen_at` are unknown of an owner that died long ago, or is of an older version."""

    shard: int
    owner: UUID | None
    owner_name: str | None
    epoch: int
    lease_expires_at: datetime | None
    watermark: datetime
    seen_at: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class SchedulerLease:
    scheduler: Scheduler
    started_at: datetime
    seen_at: datetime
    lease_expires_at: datetime
    draining: bool
    shards: int
    now: datetime


async def beat(
    connection: Connection,
    *,
    scheduler: Scheduler,
    lease_s: float,
    renew_below_s: float,
    watched: bool,
    draining: bool,
    decided: Decided,
) -> View:
    rows = await connection.fetch(
        q("beat"),
        scheduler.scheduler_id,
        scheduler.name,
        scheduler.host,
        scheduler.version,
        lease_s,
        watched,
        draining,
        renew_below_s,
        instant(decided.upto_ms),
        [s for s, _, _ in decided.shards],
        [epoch for _, epoch, _ in decided.shards],
        [changes for _, _, changes in decided.shards],
    )
    return View(
        rows[0]["now"].timestamp() * 1000,
        frozenset(rows[0]["peers"] or ()),
        [Shard(r["shard"], r["owner"], r["epoch"], millis(r["watermark"]), r["changes"], r["held"]) for r in rows],
    )


async def watch_scheduler(connection: Connection, *, scheduler_id: UUID) -> bool:
    return bool(await connection.fetchval(q("watch_scheduler"), scheduler_id))


async def take_shards(connection: Connection, *, owner: UUID, lease_s: float, seen: Sequence[Shard]) -> list[Shard]:
    rows = await connection.fetch(
        q("take_shards"), owner, lease_s, [s.shard for s in seen], [s.owner for s in seen], [s.epoch for s in seen]
    )
    return [Shard(r["shard"], owner, r["epoch"], millis(r["watermark"]), r["changes"]) for r in rows]


async def hand_over_shards(
    connection: Connection, *, owner: UUID, lease_s: float, heirs: Sequence[tuple[int, int, UUID | None]]
) -> set[int]:
    """(shard, epoch, new owner or None) in; the shards that are no longer ours out."""
    rows = await connection.fetch(
        q("hand_over_shards"), owner, lease_s, [h[0] for h in heirs], [h[1] for h in heirs], [h[2] for h in heirs]
    )
    return {shard for r in rows for shard in r["shards"]}


async def leave_schedulers(connection: Connection, *, scheduler_id: UUID) -> None:
    await connection.execute(q("leave_schedulers"), scheduler_id)


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
        ShardLease(
            r["shard"], r["owner"], r["name"], r["epoch"], r["lease_expires_at"], r["watermark"], r["seen_at"], r["now"]
        )
        for r in rows
    ]


async def list_schedulers(connection: Connection) -> list[SchedulerLease]:
    rows = await connection.fetch(q("list_schedulers"))
    return [
        SchedulerLease(
            Scheduler(r["scheduler_id"], r["name"], r["host"], r["version"]),
            r["started_at"],
            r["seen_at"],
            r["lease_expires_at"],
            r["draining"],
            r["shards"],
            r["now"],
        )
        for r in rows
    ]


async def count_shard_jobs(connection: Connection, *, shards: Sequence[int]) -> dict[int, int]:
    return {r["shard"]: r["jobs"] for r in await connection.fetch(q("count_shard_jobs"), shards)}

"""Shards: ownership, leases, epochs and watermarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from mainspring import ports
from mainspring.clock import instant, millis
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler process among its peers."""

    scheduler_id: UUID
    name: str
    host: str
    version: str


@dataclass(frozen=True, slots=True)
class DecidedShards:
    """Shards, as (shard, epoch, changes), for which everything up to `upto_ms` is decided."""

    upto_ms: int
    shards: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as read at some time; `held`: its owner was alive."""

    shard: int
    owner: UUID | None
    epoch: int
    watermark_ms: int
    changes: int
    held: bool = True


@dataclass(frozen=True, slots=True)
class ShardView:
    """What a beat read: database time, the peers that take shards, and every shard."""

    now_ms: float
    peers: frozenset[UUID]
    shards: list[Shard]

    def without(self, gone: Collection[UUID]) -> ShardView:
        """Return the same view with these schedulers counted as dead."""
        if not gone:
            return self
        seen = [replace(s, held=False) if s.owner in gone else s for s in self.shards]
        return ShardView(self.now_ms, self.peers - frozenset(gone), seen)


@dataclass(frozen=True, slots=True)
class LockedShard:
    shard: int
    watermark_ms: int
    changes: int
    blackouts: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ShardLease:
    """`owner_name` and `seen_at` are None if the owner died long ago or is of an older version."""

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
    decided: DecidedShards,
) -> ShardView:
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
    return ShardView(
        rows[0]["now"].timestamp() * 1000,
        frozenset(rows[0]["peers"] or ()),
        [Shard(r["shard"], r["owner"], r["epoch"], millis(r["watermark"]), r["changes"], r["held"]) for r in rows],
    )


async def lock_liveness(connection: Connection, *, scheduler_id: UUID) -> bool:
    return bool(await connection.fetchval(q("lock_liveness"), scheduler_id))


async def take_shards(
    connection: Connection, *, owner: UUID, lease_s: float, seen: Sequence[Shard], fence: int = 0
) -> list[Shard]:
    """Take shards as they were seen. Each new epoch is larger than the old one and at least `fence`."""
    rows = await connection.fetch(
        q("take_shards"),
        owner,
        lease_s,
        [s.shard for s in seen],
        [s.owner for s in seen],
        [s.epoch for s in seen],
        fence,
    )
    return [Shard(r["shard"], owner, r["epoch"], millis(r["watermark"]), r["changes"]) for r in rows]


async def hand_over_shards(
    connection: Connection, *, owner: UUID, lease_s: float, to: Sequence[tuple[int, int, UUID | None]]
) -> set[int]:
    """Hand over (shard, epoch, new owner or None); return the shards that were handed over."""
    rows = await connection.fetch(
        q("hand_over_shards"), owner, lease_s, [t[0] for t in to], [t[1] for t in to], [t[2] for t in to]
    )
    for row in rows:
        hint(connection, ports.OWNERS, str(row["owner"] or "free"))
    return {r["shard"] for r in rows}


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


async def still_owned(connection: Connection, *, owner: UUID, epochs: Mapping[int, int]) -> set[int]:
    """Return which of these shards the scheduler owns under these epochs. Locks nothing."""
    rows = await connection.fetch(q("still_owned"), owner, list(epochs), list(epochs.values()))
    return {r["shard"] for r in rows}


async def advance_shards(connection: Connection, *, owner: UUID, shards: Sequence[int], to_ms: int) -> None:
    await connection.execute(q("advance_shards"), owner, shards, instant(to_ms))


async def bump_shard(connection: Connection, *, shard: int) -> tuple[int, int]:
    """Return the shard's new `changes` and its watermark."""
    row = await connection.fetchrow(q("bump_shard"), shard)
    assert row is not None, f"shard {shard} does not exist"
    hint(connection, ports.SHARDS, f"edit {shard}")
    return row["changes"], millis(row["watermark"])


async def bump_shards(connection: Connection) -> dict[int, int]:
    """Return the watermark of every shard, all locked until the end of the transaction."""
    rows = await connection.fetch(q("bump_shards"))
    for row in rows:
        hint(connection, ports.SHARDS, f"edit {row['shard']}")
    return {r["shard"]: millis(r["watermark"]) for r in rows}


async def bump_edited_shards(connection: Connection, *, shards: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return the new `changes` and the watermark of these shards, all locked until the end of the transaction."""
    rows = await connection.fetch(q("bump_edited_shards"), sorted(shards))
    for row in rows:
        hint(connection, ports.SHARDS, f"edit {row['shard']}")
    return {r["shard"]: (r["changes"], millis(r["watermark"])) for r in rows}


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

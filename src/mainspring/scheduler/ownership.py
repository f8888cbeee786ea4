"""Assigns shards to schedulers. Pure: every process computes the same result from the same view.

Rendezvous hashing with bounded loads: each shard ranks the schedulers by a hash of both, and the best pairs are
assigned first, up to the load limit of each scheduler. So loads differ by at most one shard. When a scheduler joins or
leaves, the shards that move are those it gets or had, and a few more that keep the loads even.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from mainspring.ids import SHARDS
from mainspring.store.shards import Shard, ShardView

MAX_UNOWNED_BEATS = 3
"""After this many beats without an owner, any scheduler takes a shard, not only the assigned one."""


@dataclass(slots=True)
class OwnershipChanges:
    """The shards one scheduler has to take, and to give to peers."""

    take: list[Shard] = field(default_factory=list)
    give: dict[int, UUID] = field(default_factory=dict)


def assign_shards(schedulers: Collection[UUID], shards: int = SHARDS) -> dict[int, UUID]:
    """Return the owner of each shard."""
    if not schedulers:
        return {}
    limit, extra = divmod(shards, len(schedulers))
    loads = dict.fromkeys(schedulers, 0)
    owners: dict[int, UUID] = {}
    for _, shard, scheduler in sorted((_score(s, n), s, n) for s in range(shards) for n in loads):
        full = loads[scheduler] >= limit + (extra > 0 and loads[scheduler] == limit)
        if shard in owners or full:
            continue
        extra -= loads[scheduler] == limit
        loads[scheduler] += 1
        owners[shard] = scheduler
    return owners


def ownership_changes(view: ShardView, me: UUID, unowned_beats: Mapping[int, int]) -> OwnershipChanges:
    """Take assigned shards that no live process owns; give owned shards that are assigned to a peer."""
    owners = assign_shards({me, *view.peers}, len(view.shards))
    changes = OwnershipChanges()
    for seen in view.shards:
        if seen.owner == me and owners[seen.shard] != me:
            changes.give[seen.shard] = owners[seen.shard]
        elif not seen.held and (owners[seen.shard] == me or unowned_beats.get(seen.shard, 0) >= MAX_UNOWNED_BEATS):
            changes.take.append(seen)
    return changes


def successors(view: ShardView, me: UUID) -> list[tuple[int, int, UUID | None]]:
    """Return (shard, epoch, new owner) for each shard of a scheduler that leaves; None if it has no peers."""
    owners = assign_shards(view.peers, len(view.shards))
    return [(s.shard, s.epoch, owners.get(s.shard)) for s in view.shards if s.owner == me]


def _score(shard: int, scheduler: UUID) -> bytes:
    return blake2b(scheduler.bytes + shard.to_bytes(2), digest_size=8).digest()

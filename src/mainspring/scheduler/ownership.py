"""Which scheduler shall own which shard. Pure: every process computes the same from the same view.

Rendezvous hashing with bounded loads: each shard ranks the schedulers by a hash of both, and the best pairs are made
first, as long as a scheduler has room for more. So loads differ by one shard at most; and when a scheduler joins or
leaves, the shards that move are those it gets or had, and a few more that keep the loads even.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from mainspring.ids import SHARDS
from mainspring.store.shards import Shard, View

PATIENCE = 3
"""So many beats a shard may stay without an owner before any scheduler takes it, whoever should have."""


@dataclass(slots=True)
class Plan:
    """What one scheduler has to do to bring about the spread."""

    take: list[Shard] = field(default_factory=list)
    give: dict[int, UUID] = field(default_factory=dict)


def spread(schedulers: Collection[UUID], shards: int = SHARDS) -> dict[int, UUID]:
    """The owner of each shard."""
    if not schedulers:
        return {}
    room, extra = divmod(shards, len(schedulers))
    loads = dict.fromkeys(schedulers, 0)
    owners: dict[int, UUID] = {}
    for _, shard, scheduler in sorted((_score(s, n), s, n) for s in range(shards) for n in loads):
        full = loads[scheduler] >= room + (extra > 0 and loads[scheduler] == room)
        if shard in owners or full:
            continue
        extra -= loads[scheduler] == room
        loads[scheduler] += 1
        owners[shard] = scheduler
    return owners


def plan(view: View, me: UUID, free_for: Mapping[int, int]) -> Plan:
    """Takes what nobody living owns and is ours to own, gives what is a peer's to own. `free_for` counts beats."""
    owners = spread({me, *view.peers}, len(view.shards))
    wanted = Plan()
    for seen in view.shards:
        if seen.owner == me and owners[seen.shard] != me:
            wanted.give[seen.shard] = owners[seen.shard]
        elif not seen.held and (owners[seen.shard] == me or free_for.get(seen.shard, 0) >= PATIENCE):
            wanted.take.append(seen)
    return wanted


def heirs(view: View, me: UUID) -> list[tuple[int, int, UUID | None]]:
    """Who gets the shards of a scheduler that leaves: (shard, epoch, new owner), None if there is nobody."""
    owners = spread(view.peers, len(view.shards))
    return [(s.shard, s.epoch, owners.get(s.shard)) for s in view.shards if s.owner == me]


def _score(shard: int, scheduler: UUID) -> bytes:
    return blake2b(scheduler.bytes + shard.to_bytes(2), digest_size=8).digest()

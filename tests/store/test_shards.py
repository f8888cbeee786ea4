"""Shard ownership: every change checks owner and epoch."""

from __future__ import annotations

from uuid import UUID, uuid4

from mainspring.store import shards
from mainspring.store.db import Connection
from mainspring.store.shards import DecidedShards, Scheduler, Shard, ShardView
from mainspring.testing.clock import VirtualClock
from tests.support.settling import SettlingBench

NOTHING_DECIDED = DecidedShards(0, [])


async def beat(
    connection: Connection, scheduler_id: UUID, *, draining: bool = False, decided: DecidedShards = NOTHING_DECIDED
) -> ShardView:
    return await shards.beat(
        connection,
        scheduler=Scheduler(scheduler_id, "s", "h", "1"),
        lease_s=10,
        renew_below_s=99,
        watched=False,
        draining=draining,
        decided=decided,
    )


async def take(connection: Connection, owner: UUID, *numbers: int) -> list[Shard]:
    seen = (await beat(connection, owner)).shards
    return await shards.take_shards(connection, owner=owner, lease_s=10, seen=[seen[n] for n in numbers])


async def test_a_shard_is_taken_once_per_epoch(bench: SettlingBench) -> None:
    one, two = uuid4(), uuid4()
    async with bench.database.connection() as connection:
        seen = (await beat(connection, two)).shards[:2]
        (taken,) = await take(connection, one, 0)
        assert (taken.owner, taken.epoch) == (one, seen[0].epoch + 1)
        late = await shards.take_shards(connection, owner=two, lease_s=10, seen=seen)
        assert [shard.shard for shard in late] == [1], "the first has a new epoch by now"


async def test_a_firing_transaction_locks_only_shards_of_its_owner_and_epoch(bench: SettlingBench) -> None:
    one, two = uuid4(), uuid4()
    async with bench.database.transaction() as connection:
        (taken,) = await take(connection, one, 0)
        (locked,) = await shards.lock_shards(connection, owner=one, shards=[0], epochs=[taken.epoch])
        assert locked.shard == 0
        assert await shards.lock_shards(connection, owner=one, shards=[0], epochs=[taken.epoch - 1]) == []
        assert await shards.lock_shards(connection, owner=two, shards=[0], epochs=[taken.epoch]) == []


async def test_only_the_owner_advances_the_watermark_and_never_back(bench: SettlingBench) -> None:
    owner = uuid4()
    async with bench.database.connection() as connection:
        (taken,) = await take(connection, owner, 0)
        later = taken.watermark_ms + 5000
        for by, to_ms, expected in ((uuid4(), later, 0), (owner, later, 5000), (owner, later - 1000, 5000)):
            await shards.advance_shards(connection, owner=by, shards=[0], to_ms=to_ms)
            assert (await beat(connection, owner)).shards[0].watermark_ms - taken.watermark_ms == expected


async def test_a_beat_advances_shards_that_are_unchanged_since_they_were_decided(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    owner = uuid4()
    async with bench.database.connection() as connection:
        zero, one = await take(connection, owner, 0, 1)
        await shards.bump_shard(connection, shard=1)
        await virtual.advance(seconds=5)
        upto = zero.watermark_ms + 4000
        decided = DecidedShards(upto, [(s.shard, s.epoch, s.changes) for s in (zero, one)])
        await beat(connection, owner, decided=decided)
        after = (await beat(connection, owner)).shards
        assert (after[0].watermark_ms, after[1].watermark_ms) == (upto, one.watermark_ms)


async def test_a_shard_is_handed_over_by_its_owner_to_a_peer_that_does_not_drain(bench: SettlingBench) -> None:
    owner, peer, leaving = uuid4(), uuid4(), uuid4()
    async with bench.database.connection() as connection:
        (taken,) = await take(connection, owner, 0)
        await beat(connection, peer)
        await beat(connection, leaving, draining=True)
        refused = [(peer, taken.epoch, peer), (owner, taken.epoch - 1, peer), (owner, taken.epoch, leaving)]
        for by, epoch, to in refused:
            assert await shards.hand_over_shards(connection, owner=by, lease_s=10, to=[(0, epoch, to)]) == set()
        given = await shards.hand_over_shards(connection, owner=owner, lease_s=10, to=[(0, taken.epoch, peer)])
        assert given == {0}
        now = (await beat(connection, peer)).shards[0]
        assert (now.owner, now.epoch) == (peer, taken.epoch + 1)


async def test_the_liveness_lock_has_one_holder(bench: SettlingBench) -> None:
    scheduler_id = uuid4()
    async with bench.database.connection() as one, bench.database.connection() as two:
        assert await shards.lock_liveness(one, scheduler_id=scheduler_id)
        assert not await shards.lock_liveness(two, scheduler_id=scheduler_id)
        assert await shards.lock_liveness(two, scheduler_id=uuid4())

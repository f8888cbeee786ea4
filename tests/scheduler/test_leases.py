"""Schedulers among one another, on a real database: joining, leaving, dying, and what each beat may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog.testing

from mainspring.clock import DatabaseClock, millis
from mainspring.ids import shard_of
from mainspring.intake import jobs
from mainspring.scheduler.leases import Leases
from mainspring.scheduler.service import Scheduler
from mainspring.store import shards
from mainspring.store.db import Database
from mainspring.store.shards import DecidedShards, ShardView
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import refs
from tests.support.flaky_database import Flaky
from tests.support.scheduling import TENANT, add, finish_all, ledger, scheduler_on, step
from tests.support.silent_bus import SilentBus

NOTHING = DecidedShards(0, ())


class Hands(DatabaseClock):
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


async def owners(database: Database) -> Counter[UUID | None]:
    async with database.connection() as connection:
        return Counter(lease.owner for lease in await shards.list_shards(connection))


async def watermarks(database: Database) -> dict[int, float]:
    """Seconds after START, by shard."""
    async with database.connection() as connection:
        return {s.shard: (s.watermark - START).total_seconds() for s in await shards.list_shards(connection)}


@asynccontextmanager
async def watched(database: Database, **more: Any) -> AsyncIterator[Leases]:
    """The lease of a scheduler that holds its lock."""
    leases = Leases(database, more.pop("clock", None) or DatabaseClock(), name=None, lease_s=30, **more)
    await leases.open()
    try:
        yield leases
    finally:
        await leases.close()


async def all_taken(leases: Leases) -> ShardView:
    await leases.beat(NOTHING)
    await leases.take(leases.changes().take)
    return await leases.beat(NOTHING)


# Joining and leaving -------------------------------------------------------------------------------


async def test_a_newcomer_gets_its_share_and_no_fire_is_lost_or_doubled(fresh: Database, virtual: VirtualClock) -> None:
    for n in range(20):
        await add(fresh, f"minutely-{n}")
    first = await scheduler_on(fresh)
    second = Scheduler(fresh, SilentBus(), lease_s=30)
    for _ in range(12):
        await virtual.advance(seconds=20)
        for scheduler in (second, first):
            await step(scheduler)
        await finish_all(fresh)
    assert (len(first.shards), len(second.shards)) == (32, 32)
    assert set(first.shards).isdisjoint(second.shards)
    for n in range(20):
        assert [at for at, _, _ in await ledger(fresh, f"minutely-{n}")] == [60, 120, 180, 240]


async def test_three_schedulers_share_evenly_and_a_planned_stop_hands_over_at_once(
    fresh: Database, virtual: VirtualClock
) -> None:
    three = [await scheduler_on(fresh) for _ in range(3)]
    for scheduler in [*three, *three]:
        await step(scheduler)
    assert sorted(len(s.shards) for s in three) == [21, 21, 22]
    leaver, *others = three
    await leaver.drain()
    assert set(await owners(fresh)) == {others[0].owner, others[1].owner}, "no lease was waited for"
    for scheduler in [*others, *others]:
        await step(scheduler)
    assert sorted(others[0].shards + others[1].shards) == list(range(64))
    assert {len(other.shards) for other in others} == {32}


async def test_a_scheduler_that_drains_is_given_nothing(fresh: Database, virtual: VirtualClock) -> None:
    first, second = await scheduler_on(fresh), Scheduler(fresh, SilentBus(), lease_s=30)
    await second.lease()
    await first.lease()  # has seen the second, and means to give it half
    async with fresh.connection() as connection:
        await connection.execute("UPDATE schedulers SET draining = true WHERE scheduler_id = $1", second.owner)
    await first.decide()
    assert await owners(fresh) == {first.owner: 64}


async def test_what_an_older_version_owns_is_left_to_it_while_its_lease_lasts(
    fresh: Database, virtual: VirtualClock
) -> None:
    """An older program writes no row of its own; its shards speak for it."""
    older = uuid4()
    async with fresh.connection() as connection:
        await connection.execute(
            "UPDATE shards SET owner = $1, epoch = epoch + 1, lease_expires_at = db_now() + interval '5 s'", older
        )
    scheduler = await scheduler_on(fresh)
    assert await owners(fresh) == {older: 64}
    await virtual.advance(seconds=6)
    await step(scheduler)
    assert await owners(fresh) == {scheduler.owner: 64}


# Dying ---------------------------------------------------------------------------------------------


async def test_a_death_is_seen_by_the_lock_and_not_awaited_by_the_lease(fresh: Database, virtual: VirtualClock) -> None:
    async with watched(fresh) as first, watched(fresh) as second:
        await all_taken(first)
        assert (await second.beat(NOTHING)).peers == {first.me}
        await first.close()  # what the kernel does to a killed process
        assert (await second.beat(NOTHING)).peers == frozenset()
        await second.take(second.changes().take)
        assert await owners(fresh) == {second.me: 64}, "though by the clock the lease of the first has just begun"


async def test_a_stopped_scheduler_keeps_its_lock_and_is_replaced_when_its_lease_ends(
    fresh: Database, virtual: VirtualClock
) -> None:
    async with watched(fresh) as stopped, watched(fresh) as second:
        await all_taken(stopped)
        await virtual.advance(seconds=29)
        view = await second.beat(NOTHING)
        assert stopped.me in view.peers and second.changes().take == []
        await virtual.advance(seconds=2)
        await second.beat(NOTHING)
        await second.take(second.changes().take)
        assert await owners(fresh) == {second.me: 64}
        awake = await stopped.beat(DecidedShards(millis(virtual.now), [(s, 1, 0) for s in range(64)]))
        assert [s.shard for s in awake.shards if s.owner == stopped.me] == []
        assert second.me in awake.peers


async def test_after_a_gap_of_its_own_a_scheduler_gives_the_others_time_to_come_back(
    fresh: Database, virtual: VirtualClock
) -> None:
    """The database was away for all: whoever is back first must not take everything from the rest."""
    clock = Hands()
    async with watched(fresh, clock=clock) as first, watched(fresh) as second:
        await all_taken(first)
        await second.beat(NOTHING)
        clock.ahead_s += 20
        await second.close()
        assert (await first.beat(NOTHING)).peers == frozenset()
        assert first.changes().take == [] and first.changes().give == {}
        async with fresh.connection() as connection:
            await connection.execute("UPDATE shards SET owner = $1 WHERE shard < 10", second.me)
        clock.ahead_s += 10  # no gap: within half a lease
        await first.beat(NOTHING)
        clock.ahead_s += 10
        await first.beat(NOTHING)
        assert len(first.changes().take) == 10, "the second is really gone"


async def test_taking_checks_owner_and_epoch_as_they_were_seen(fresh: Database, virtual: VirtualClock) -> None:
    async with watched(fresh) as first, watched(fresh) as second:
        await first.beat(NOTHING)
        await second.beat(NOTHING)
        seen = [s for s in (await first.beat(NOTHING)).shards if s.shard < 8]
        assert len(await first.take(seen)) == 8
        assert await second.take(seen) == [], "somebody was faster"


# What a beat may change ----------------------------------------------------------------------------


async def test_a_beat_never_waits_for_a_locked_shard(fresh: Database, virtual: VirtualClock) -> None:
    async with watched(fresh) as leases:
        await all_taken(leases)
        await virtual.advance(seconds=20)
        async with fresh.transaction() as editor:
            await shards.bump_shard(editor, shard=7)
            view = await leases.beat(NOTHING)
        assert view.shards[7].held
        async with fresh.connection() as connection:
            left = {s.shard: s.lease_expires_at - s.now for s in await shards.list_shards(connection)}  # type: ignore[operator]
        assert left[7] == timedelta(seconds=10) and left[8] == timedelta(seconds=30)


async def test_idle_watermarks_follow_the_clock(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "minutely")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(seconds=20)
        await step(scheduler)
    (mark,) = set((await watermarks(fresh)).values())
    assert 20 <= mark <= 40, "as far as the beat before had decided"


async def test_a_beat_moves_no_watermark_past_an_edit_the_wheel_does_not_know(
    fresh: Database, virtual: VirtualClock
) -> None:
    scheduler = await scheduler_on(fresh)
    await step(scheduler)
    await add(fresh, "unheard-of", overlap="allow")
    shard = shard_of((await refs.job_row(fresh, "unheard-of", tenant=TENANT)).job_id)
    await virtual.advance(seconds=61)
    scheduler.clock.observe(millis(virtual.now), scheduler.clock.monotonic(), scheduler.clock.monotonic())
    await scheduler.decide()  # the wheel is empty: everything is decided, as far as it knows
    await scheduler.lease()
    marks = await watermarks(fresh)
    assert marks.pop(shard) == 0 and set(marks.values()) == {61}
    await scheduler.decide()
    assert await ledger(fresh, "unheard-of") == [(60, "queued", None)]


@pytest.mark.parametrize("lost", ["before", "after"], ids=["connection lost", "answer lost"])
async def test_a_beat_moves_no_watermark_past_what_a_failed_tick_left(
    fresh: Database, virtual: VirtualClock, lost: str
) -> None:
    await add(fresh, "minutely", overlap="allow")
    flaky = Flaky(fresh.dsn)
    async with flaky:
        scheduler = Scheduler(flaky, SilentBus(), lease_s=30)
        await step(scheduler)
        await step(scheduler)
        for seconds in (29, 29, 4):
            await virtual.advance(seconds=seconds)
            await scheduler.lease()
        flaky.trouble = [lost]
        with pytest.raises(ConnectionResetError):
            await scheduler.decide()
        for _ in range(2):
            await virtual.advance(seconds=20)
            await scheduler.lease()
        if lost == "before":
            assert max((await watermarks(fresh)).values()) < 60
        await scheduler.decide()
    assert await ledger(fresh, "minutely") == [(60, "queued", None)]


async def test_a_beat_moves_no_watermark_of_another_epoch(fresh: Database, virtual: VirtualClock) -> None:
    async with watched(fresh) as leases:
        await all_taken(leases)
        await virtual.advance(seconds=20)
        await leases.beat(DecidedShards(millis(virtual.now), [(s, 0 if s < 60 else 1, 0) for s in range(64)]))
    marks = await watermarks(fresh)
    assert {s for s, at in marks.items() if at == 20} == {60, 61, 62, 63}


async def test_a_beat_moves_no_watermark_past_database_time(fresh: Database, virtual: VirtualClock) -> None:
    async with watched(fresh) as leases:
        await all_taken(leases)
        await virtual.advance(seconds=20)
        await leases.beat(DecidedShards(millis(virtual.now + timedelta(hours=1)), [(s, 1, 0) for s in range(64)]))
    assert set((await watermarks(fresh)).values()) == {20}


async def test_a_pause_and_a_resume_across_a_handover(fresh: Database, virtual: VirtualClock) -> None:
    """What is in the shard row and the jobs is all a new owner needs to know."""
    await add(fresh, "moving", overlap="allow")
    row = await refs.job_row(fresh, "moving", tenant=TENANT)
    first = await scheduler_on(fresh)
    await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="")
    await virtual.advance(seconds=60)
    await step(first)
    await first.drain()
    second = await scheduler_on(fresh)
    await jobs.resume(fresh, row.job_id, tenant=TENANT)
    await virtual.advance(seconds=60)
    await step(second)
    assert await ledger(fresh, "moving") == [(60, "skipped", "paused"), (120, "queued", None)]


# The leader, the clock -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [True, False], ids=["planned stop", "death"])
async def test_there_is_one_leader_and_a_successor(fresh: Database, virtual: VirtualClock, stop: bool) -> None:
    first, second = await scheduler_on(fresh), await scheduler_on(fresh)
    for scheduler in (first, second, first, second):
        await step(scheduler)
    leader, other = (first, second) if first.leads() else (second, first)
    assert leader.leads() and not other.leads()
    if stop:
        await leader.drain()
    else:
        await virtual.advance(seconds=31)
    await step(other)
    assert other.leads()
    assert stop is not leader.leads(), "a dead one may believe what it likes: it can change nothing"


async def test_a_leader_that_is_cut_off_steps_down_with_its_lease(fresh: Database) -> None:
    clock = Hands()
    leases = Leases(fresh, clock, name=None, lease_s=30)
    await leases.beat(NOTHING)
    assert leases.held
    clock.ahead_s += 31
    assert not leases.held


async def test_a_skewed_clock_is_measured_and_told_once(fresh: Database, virtual: VirtualClock) -> None:
    """Database time is far from this machine's here; fires follow the database all the same."""
    await add(fresh, "minutely")
    with structlog.testing.capture_logs() as told:
        scheduler = await scheduler_on(fresh)
        for _ in range(3):
            await virtual.advance(seconds=60)
            await step(scheduler)
    warnings = [line for line in told if "clock" in line["event"]]
    assert len(warnings) == 1 and abs(warnings[0]["skew_s"]) > 1
    assert [at for at, _, _ in await ledger(fresh, "minutely")] == [60, 120, 180]


async def test_whoever_stops_inside_a_transaction_is_ended_by_the_server(fresh: Database) -> None:
    """Its row locks would keep a successor from the shard."""
    for lend, patience in ((fresh.hot, "5s"), (fresh.connection, "15s")):
        async with lend() as connection:
            assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == patience
    stopped = await fresh.dedicated()
    try:
        await stopped.execute("SET idle_in_transaction_session_timeout = '50ms'")
        await stopped.execute("BEGIN; SELECT FROM shards WHERE shard = 7 FOR UPDATE")
        async with watched(fresh) as successor:
            await successor.beat(NOTHING)
            while 7 not in {s.shard for s in await successor.take(successor.changes().take)}:
                await successor.beat(NOTHING)
    finally:
        stopped.terminate()

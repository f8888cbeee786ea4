"""Locks of instants on a real Redis: a former owner of a shard does not even begin to insert."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mainspring.backends.engines import open_fire_lock
from mainspring.backends.redis_fire_lock import RedisFireLock
from mainspring.domain.errors import Invalid
from mainspring.ids import SHARDS
from mainspring.ports import DueInstant
from mainspring.scheduler import herd
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Connection, Database
from mainspring.telemetry import metrics
from mainspring.testing.clock import START, VirtualClock
from tests.support.engine_servers import RedisServer
from tests.support.processes import until
from tests.support.scheduling import add, ledger, sees_the_time, step
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

LEASE_S = 30
FIRED = [(60, "queued", None)]


@pytest.fixture
async def lock(redis: RedisServer) -> AsyncIterator[RedisFireLock]:
    opened = open_fire_lock(redis.url, prefix="mainspring-test")
    assert opened is not None
    await opened.start()
    await opened.ready()
    yield opened
    await opened.stop()


class CountingDatabase(Database):
    """Counts the connections of the hot path: each transaction that decides fires takes one."""

    taken = 0

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        self.taken += 1
        async with super().hot() as connection:
            yield connection


@pytest.fixture
async def former(fresh: Database, virtual: VirtualClock) -> AsyncIterator[CountingDatabase]:
    """The database as the first scheduler uses it. It has the job `minutely`."""
    await add(fresh, "minutely", overlap="allow")
    database = CountingDatabase(fresh.dsn, size=4)
    async with database:
        yield database


async def two_owners(
    former: Database, fresh: Database, virtual: VirtualClock, lock: RedisFireLock | None
) -> tuple[Scheduler, Scheduler]:
    """The first was stopped, and the second has all its shards. At the first fire, both believe that they own them."""
    first = Scheduler(former, SilentBus(), lease_s=LEASE_S, fire_lock=lock)
    await step(first)
    await virtual.advance(seconds=LEASE_S + 10)
    second = Scheduler(fresh, SilentBus(), lease_s=LEASE_S, fire_lock=lock)
    await step(second)
    assert len(second.shards) == len(first.shards) == SHARDS
    await virtual.advance(seconds=20)
    for scheduler in (first, second):
        sees_the_time(scheduler, virtual.now)
    return first, second


@pytest.mark.requirement(32)
async def test_the_loser_of_the_lock_inserts_nothing(
    former: CountingDatabase, fresh: Database, virtual: VirtualClock, lock: RedisFireLock
) -> None:
    first, second = await two_owners(former, fresh, virtual, lock)
    await second.decide()
    before = former.taken
    await first.decide()
    assert former.taken == before, "it has not begun a transaction"
    assert await ledger(fresh, "minutely") == FIRED
    await first.lease()
    await first.decide()
    assert len(first.shards) < SHARDS, "its beat has read who owns them"
    assert await ledger(fresh, "minutely") == FIRED


async def test_without_the_lock_the_row_refuses_the_loser(
    former: CountingDatabase, fresh: Database, virtual: VirtualClock
) -> None:
    first, second = await two_owners(former, fresh, virtual, None)
    await second.decide()
    before = former.taken
    await first.decide()
    assert former.taken > before and await ledger(fresh, "minutely") == FIRED


@pytest.mark.requirement(32)
@pytest.mark.parametrize("harm", ["none", "killed", "frozen", "empty"])
async def test_two_schedulers_racing_create_one_execution(
    former: CountingDatabase,
    fresh: Database,
    virtual: VirtualClock,
    lock: RedisFireLock,
    redis: RedisServer,
    harm: str,
) -> None:
    first, second = await two_owners(former, fresh, virtual, lock)
    if harm == "killed":
        redis.kill()
    elif harm == "frozen":
        redis.freeze()
    elif harm == "empty":
        await redis.restart_empty()
        await until("Redis is connected", lambda: lock.connected, within_s=30)
    await asyncio.gather(first.decide(), second.decide())
    await step(second)
    assert await ledger(fresh, "minutely") == FIRED
    if harm == "frozen":
        redis.thaw()


async def test_a_successor_takes_the_lock_of_an_owner_that_died_before_its_commit(
    former: CountingDatabase, fresh: Database, virtual: VirtualClock, lock: RedisFireLock
) -> None:
    first, second = await two_owners(former, fresh, virtual, lock)
    at_ms = int(START.timestamp() * 1000) + 60_000
    held = [
        DueInstant(shard, owned.epoch, schedule, at_ms)
        for shard, owned in first._owned.items()
        for schedule in range(1, 20)
    ]
    assert await lock.refused(held) == set()
    await second.decide()
    assert await ledger(fresh, "minutely") == FIRED


async def plant(lock: RedisFireLock, scheduler: Scheduler, *, at_s: int) -> None:
    """Lock an instant of every schedule under an epoch that never was, as any client of Redis can."""
    at_ms = int(START.timestamp() * 1000) + at_s * 1000
    await lock.refused([DueInstant(shard, 1 << 40, n, at_ms) for shard in scheduler.shards for n in range(1, 20)])


async def test_a_false_lock_costs_the_owner_a_read(
    fresh: Database, former: CountingDatabase, virtual: VirtualClock, lock: RedisFireLock
) -> None:
    """Also as after a restore of the database to an earlier epoch: the rows of the shards decide."""
    _, second = await two_owners(former, fresh, virtual, lock)
    await plant(lock, second, at_s=60)
    before = metrics.FALSE_FIRE_LOCKS._value.get()
    await second.decide()
    assert await ledger(fresh, "minutely") == FIRED
    assert len(second.shards) == SHARDS, "no shard was given up and loaded again"
    assert metrics.FALSE_FIRE_LOCKS._value.get() > before


async def test_a_lock_that_is_not_confirmed_in_time_is_ignored(
    fresh: Database,
    former: CountingDatabase,
    virtual: VirtualClock,
    lock: RedisFireLock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = await two_owners(former, fresh, virtual, lock)
    await second.decide()
    monkeypatch.setattr(herd, "CONFIRM_S", 0.0)
    before = former.taken
    await first.decide()
    assert former.taken > before, "the row of the shard was asked"
    assert await ledger(fresh, "minutely") == FIRED


async def test_an_earlier_epoch_is_refused_and_a_later_one_is_not(lock: RedisFireLock) -> None:
    def instants(epoch: int) -> list[DueInstant]:
        return [DueInstant(shard, epoch, 1, 60_000) for shard in range(SHARDS) for _ in range(20)]

    assert await lock.refused(instants(5)) == set()
    assert await lock.refused(instants(5)) == set(), "its own"
    assert await lock.refused(instants(6)) == set()
    assert await lock.refused(instants(5)) == set(range(SHARDS))
    assert await lock.refused([]) == set()


async def test_refused_credentials_are_an_error_at_start(locked_redis: RedisServer) -> None:
    opened = open_fire_lock(locked_redis.url.replace("correct", "wrong"), prefix="p")
    assert opened is not None
    with pytest.raises(Invalid, match=r"--fire-lock redis://127\.0\.0\.1:\d+: "):
        await opened.start()
    with pytest.raises(Invalid, match="--fire-lock etcd://host: unknown engine; use redis://HOST"):
        open_fire_lock("etcd://host", prefix="p")

"""Due instants read ahead into a real Redis: fewer reads of the database, and no late or lost execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.backends.engines import open_delays
from mainspring.backends.redis_delays import RedisDelays
from mainspring.domain.errors import Invalid
from mainspring.domain.execution import execution_id
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import blackouts, executions
from mainspring.ports import Upcoming
from mainspring.scheduler.promotion import AHEAD
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.store.executions import NewExecution, insert_executions
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import refs
from tests.support.engine_servers import RedisServer
from tests.support.processes import until
from tests.support.scheduling import TENANT, add, ledger, sees_the_time, step
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

NEVER = ScheduleSpec(every=86_400, start_at=(START + timedelta(days=300)).isoformat())


@pytest.fixture
async def delays(redis: RedisServer) -> AsyncIterator[RedisDelays]:
    opened = open_delays(redis.url, prefix="mainspring-test")
    assert opened is not None
    await opened.start()
    await opened.ready()
    yield opened
    await opened.stop()


class Site:
    """A scheduler without loops or hints, and delayed submissions of one job."""

    def __init__(self, database: Database, clock: VirtualClock, delays: RedisDelays) -> None:
        self.database, self.clock = database, clock
        self.scheduler = Scheduler(database, SilentBus(), lease_s=600, delays=delays)

    async def open(self) -> None:
        await add(self.database, "later", schedule=NEVER, overlap="allow")
        await step(self.scheduler)

    async def submit(self, *seconds: float) -> list[UUID]:
        row = await refs.job_row(self.database, "later", tenant=TENANT)
        new = []
        for after in seconds:
            due_at = START + timedelta(seconds=after)
            made = execution_id(row.job_id, int(due_at.timestamp() * 1000), f"manual:{after}")
            new.append(NewExecution(made, row.job_id, "manual", due_at))
        async with self.database.connection() as connection:
            await insert_executions(connection, tenant=TENANT, new=new, created_by="test")
        return [one.execution_id for one in new]

    async def at(self, seconds: float) -> list[float]:
        """Move the clock, decide, and return which executions are queued, by their delay."""
        await self.clock.set(START + timedelta(seconds=seconds))
        sees_the_time(self.scheduler, self.clock.now)
        await self.scheduler.decide()
        return [after for after, state, _ in await ledger(self.database, "later") if state == "queued"]

    @property
    def reads(self) -> int:
        return self.scheduler._promotion.reads


@pytest.fixture
async def site(fresh: Database, virtual: VirtualClock, delays: RedisDelays) -> Site:
    opened = Site(fresh, virtual, delays)
    await opened.open()
    return opened


@pytest.mark.requirement(72)
async def test_every_delayed_execution_is_queued_when_due_with_one_read_of_the_database(site: Site) -> None:
    await site.submit(*range(1, 25))
    site.scheduler._on_gap()
    await site.at(0)
    before = site.reads
    for second in range(1, 25):
        assert await site.at(second - 0.001) == list(range(1, second))
        assert await site.at(second) == list(range(1, second + 1))
    assert site.reads - before <= 1, "the read-ahead of a shard ends after its last execution"
    assert site.scheduler._promotion.next_ms is None or site.scheduler._promotion.next_ms > START.timestamp() * 1000


async def test_a_read_ahead_that_has_ended_is_continued(site: Site) -> None:
    """One job is in one shard, of which only the first executions are read ahead."""
    count = AHEAD + 8
    await site.submit(*range(1, count + 1))
    site.scheduler._on_gap()
    await site.at(0)
    before = site.reads
    for second in range(1, count + 1):
        assert len(await site.at(second)) == second
    assert 1 <= site.reads - before <= 3


@pytest.mark.requirement(72)
@pytest.mark.parametrize("harm", ["killed", "frozen", "empty"])
async def test_a_lost_redis_costs_a_read_of_the_database(
    site: Site, redis: RedisServer, delays: RedisDelays, harm: str
) -> None:
    await site.submit(1, 2, 3, 4)
    site.scheduler._on_gap()
    assert await site.at(1) == [1]
    before = site.reads
    if harm == "killed":
        redis.kill()
    elif harm == "frozen":
        redis.freeze()
    else:
        await redis.restart_empty()
        await until("Redis is connected", lambda: delays.connected, within_s=30)
    assert await site.at(2) == [1, 2]
    assert site.reads > before
    assert await site.at(3) == [1, 2, 3]
    if harm == "frozen":
        redis.thaw()
    elif harm == "killed":
        await redis.start()
    await until("Redis is connected", lambda: delays.connected, within_s=30)
    assert await site.at(4) == [1, 2, 3, 4]


async def test_a_submission_after_the_read_ahead_is_queued_when_due(site: Site) -> None:
    await site.submit(5)
    site.scheduler._on_gap()
    await site.at(0)
    await site.submit(2, 3)
    site.scheduler._on_shard_event(f"wait {int(START.timestamp() * 1000) + 2000}")
    assert await site.at(2) == [2]
    assert await site.at(3) == [2, 3], "a hint has only the earliest of several"
    assert await site.at(5) == [2, 3, 5]


async def test_an_execution_that_no_longer_waits_costs_a_read(site: Site) -> None:
    gone, _ = await site.submit(1, 2)
    site.scheduler._on_gap()
    await site.at(0)
    await executions.cancel(site.database, gone, tenant=TENANT, by="test", reason="")
    before = site.reads
    assert await site.at(1) == []
    assert site.reads > before
    assert await site.at(2) == [2]


async def test_the_blackout_gate_decides_one_time_jobs(site: Site) -> None:
    """What is due and not promoted is read from the database, and so goes to the gate."""
    await add(site.database, "once", schedule=ScheduleSpec(at=(START + timedelta(seconds=2)).isoformat()))
    await site.submit(1, 3)
    site.scheduler._on_gap()
    await site.at(1)
    await blackouts.create(
        site.database,
        wire.NewBlackout(start_at=START, end_at=START + timedelta(seconds=60), reason="maintenance"),
        tenant=TENANT,
        by="test",
    )
    assert await site.at(2) == [1]
    assert await ledger(site.database, "once") == [(2, "waiting", None)]
    assert await site.at(3) == [1, 3]
    await site.at(60)
    assert await ledger(site.database, "once") == [(2, "queued", None)]


async def test_a_former_owner_does_not_change_what_its_successor_has_read(delays: RedisDelays) -> None:
    delays.keep({(3, 7): [1_000], (4, 7): []}, ends={(3, 7): 2_000})
    assert await delays.take([(3, 8), (4, 8)], 0) is None
    delays.keep({(3, 8): [5_000], (4, 8): []}, ends={})
    delays.keep({(3, 7): [9_000]}, ends={})
    assert await delays.take([(3, 8), (4, 8)], 0) == Upcoming(0, 5_000)
    assert await delays.take([(3, 8), (4, 8)], 5_000) == Upcoming(1, None)
    assert await delays.take([], 0) is None


async def test_refused_credentials_are_an_error_at_start(locked_redis: RedisServer) -> None:
    opened = open_delays(locked_redis.url.replace("correct", "wrong"), prefix="p")
    assert opened is not None
    with pytest.raises(Invalid, match=r"--delays redis://127\.0\.0\.1:\d+: "):
        await opened.start()
    with pytest.raises(Invalid, match="--delays etcd://host: unknown engine; use redis://HOST"):
        open_delays("etcd://host", prefix="p")

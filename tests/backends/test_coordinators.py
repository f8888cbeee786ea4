"""Coordinators on real etcd and ZooKeeper servers: members, fences, and what their loss costs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mainspring.backends.engines import open_coordinator
from mainspring.backends.etcd_coordinator import EtcdCoordinator
from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator
from mainspring.domain.errors import Invalid
from mainspring.ids import SHARDS
from mainspring.scheduler.service import Scheduler
from mainspring.store import shards
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from tests.support.coordinated_scheduler import LEASE_S, PREFIX
from tests.support.engine_servers import EngineServer, EtcdServer, ZooKeeperServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio

Coordinator = EtcdCoordinator | ZooKeeperCoordinator


@pytest.fixture(params=[EtcdServer, ZooKeeperServer], ids=["etcd", "zookeeper"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineServer]:
    server: EngineServer = request.param(tmp_path / "engine")
    await server.start()
    yield server
    server.kill()


@asynccontextmanager
async def member(engine: EngineServer) -> AsyncIterator[tuple[Coordinator, UUID]]:
    """A registered scheduler."""
    coordinator = open_coordinator(engine.url, prefix=PREFIX)
    assert coordinator is not None
    scheduler_id = uuid4()
    try:
        await coordinator.join(scheduler_id, "a scheduler")
        await until("it is connected", lambda: coordinator.connected, within_s=60)
        yield coordinator, scheduler_id
    finally:
        await coordinator.stop()


async def test_a_member_that_leaves_is_reported_and_one_that_never_joined_is_not(engine: EngineServer) -> None:
    async with member(engine) as (watching, _):
        changes: list[int] = []
        watching.watch(lambda: changes.append(1))
        async with member(engine) as (leaving, left):
            await until("it joined", lambda: bool(changes), within_s=30)
            assert watching.gone() == frozenset()
            seen = len(changes)
            await leaving.leave()
            await until("it is gone", lambda: watching.gone() == {left}, within_s=30)
            assert len(changes) > seen


async def test_fences_grow_across_processes(engine: EngineServer) -> None:
    async with member(engine) as (one, _), member(engine) as (other, _):
        found = [await (one, other)[number % 2].fence() for number in range(10)]
        assert found == sorted(set(found)) and found[0] > 0


async def test_an_engine_that_is_killed_and_starts_empty_makes_no_member_look_gone(engine: EngineServer) -> None:
    async with member(engine) as (one, _), member(engine) as (other, other_id):
        engine.kill()
        await until("both notice", lambda: not (one.connected or other.connected), within_s=60)
        assert one.gone() == frozenset() and await one.fence() == 0
        await engine.restart_empty()
        await until("both are back", lambda: one.connected and other.connected, within_s=60)
        assert one.gone() <= {other_id}  # it may have come back a moment later
        await until("all are registered again", lambda: one.gone() == frozenset(), within_s=30)
        await other.leave()
        await until("it is gone", lambda: one.gone() == {other_id}, within_s=30)


async def test_a_frozen_engine_is_unavailable_within_seconds(engine: EngineServer) -> None:
    async with member(engine) as (one, _):
        engine.freeze()
        await until("it is noticed", lambda: not one.connected, within_s=30)
        assert await one.fence() == 0
        engine.thaw()
        await until("it is back", lambda: one.connected, within_s=60)


@asynccontextmanager
async def scheduling(database: Database, url: str) -> AsyncIterator[Scheduler]:
    bus = PostgresBus(database)
    scheduler = Scheduler(database, bus, lease_s=LEASE_S, coordinator=open_coordinator(url, prefix=PREFIX))
    await bus.start()
    await bus.ready()
    await scheduler.start()
    await scheduler.ready()
    try:
        yield scheduler
    finally:
        await scheduler.drain()
        await scheduler.stop()
        await bus.stop()


async def test_shards_of_a_frozen_scheduler_move_before_its_lease_ends(fresh: Database, engine: EngineServer) -> None:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.support.coordinated_scheduler", fresh.dsn, engine.url],
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        while (line := await process.stdout.readline()) and line != b"ready\n":
            pass
        async with scheduling(fresh, engine.url) as scheduler:
            await until("the shards are shared", lambda: len(scheduler.shards) == SHARDS // 2, within_s=60)
            async with fresh.connection() as connection:
                before = {s.shard: s.epoch for s in await shards.list_shards(connection)}
            theirs = set(before) - set(scheduler.shards)
            process.send_signal(signal.SIGSTOP)  # its connection and its lease of ten minutes stay
            await until("all are taken over", lambda: len(scheduler.shards) == SHARDS, within_s=30)
            async with fresh.connection() as connection:
                after = {s.shard: s for s in await shards.list_shards(connection)}
            assert all(after[s].owner == scheduler.owner and after[s].epoch > before[s] for s in theirs)
            process.send_signal(signal.SIGCONT)
            await until("it registers again and shares", lambda: len(scheduler.shards) == SHARDS // 2, within_s=60)
    finally:
        process.kill()
        await process.wait()


async def test_epochs_grow_also_when_fences_start_again(fresh: Database) -> None:
    async with fresh.connection() as connection:
        owner = uuid4()
        (row, *_) = await shards.list_shards(connection)
        seen = shards.Shard(row.shard, row.owner, row.epoch, 0, 0, held=False)
        (taken,) = await shards.take_shards(connection, owner=owner, lease_s=5, seen=[seen], fence=4_294_967_301)
        assert taken.epoch == 4_294_967_301
        seen = shards.Shard(row.shard, owner, taken.epoch, 0, 0, held=False)
        (again,) = await shards.take_shards(connection, owner=uuid4(), lease_s=5, seen=[seen], fence=3)
        assert again.epoch == taken.epoch + 1


def test_coordinators_are_chosen_by_url() -> None:
    assert open_coordinator(None, prefix="p") is None
    assert isinstance(open_coordinator("etcd://u:secret@one,two:2379/team", prefix="p"), EtcdCoordinator)
    assert isinstance(open_coordinator("zookeeper://one:2181,two:2181", prefix="p"), ZooKeeperCoordinator)
    for url, problem in {
        "consul://here": "unknown engine; use etcd://HOST or zookeeper://HOST",
        "etcd://": "a host is required",
        "zookeeper://": "a host is required",
    }.items():
        with pytest.raises(Invalid, match=problem):
            open_coordinator(url, prefix="p")

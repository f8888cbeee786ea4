"""Coordinators on real etcd and ZooKeeper servers: members, fences, lost sessions, and what a lost engine costs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring.backends.engines import open_coordinator
from mainspring.backends.etcd_coordinator import EtcdCoordinator
from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator
from mainspring.domain.errors import Invalid
from mainspring.ids import SHARDS
from mainspring.scheduler.ownership import assign_shards
from mainspring.scheduler.service import LEADER_SHARD, Scheduler
from mainspring.store import shards
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from tests.support.clocks import RunningTime
from tests.support.coordinated_scheduler import LEASE_S
from tests.support.engine_door import EngineDoor, engine_door
from tests.support.engine_servers import EngineServer, EtcdServer, ZooKeeperServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio

TAKEOVER_S = 2.0 if os.environ.get("ENGINE_ROUNDS") else 5.0
"""The long form has the machine for itself."""

Coordinator = EtcdCoordinator | ZooKeeperCoordinator


@pytest.fixture(scope="module", params=[EtcdServer, ZooKeeperServer], ids=["etcd", "zookeeper"])
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[EngineServer]:
    """One server for all tests, which repair what they break."""
    server: EngineServer = request.param(tmp_path_factory.mktemp("coordinators") / "engine")
    await server.start()
    yield server
    server.kill()


@pytest.fixture
def url(engine: EngineServer) -> str:
    """The engine, with names of this test alone."""
    return f"{engine.url}/{uuid4().hex}"


@asynccontextmanager
async def member(url: str) -> AsyncIterator[tuple[Coordinator, UUID]]:
    """A registered scheduler."""
    coordinator = open_coordinator(url, prefix="unused")
    assert coordinator is not None
    scheduler_id = uuid4()
    try:
        await coordinator.join(scheduler_id, "a scheduler")
        await until("it is connected", lambda: coordinator.connected, within_s=60)
        yield coordinator, scheduler_id
    finally:
        await coordinator.stop()


@asynccontextmanager
async def distant(url: str) -> AsyncIterator[tuple[Coordinator, UUID, EngineDoor]]:
    """A registered scheduler whose connection can be cut."""
    async with engine_door(url) as door, member(door.url) as (coordinator, scheduler_id):
        yield coordinator, scheduler_id, door


async def test_a_member_that_leaves_is_reported_and_one_that_never_joined_is_not(url: str) -> None:
    async with member(url) as (watching, _):
        changes: list[int] = []
        watching.watch(lambda: changes.append(1))
        async with member(url) as (leaving, left):
            await until("it joined", lambda: bool(changes), within_s=30)
            assert watching.gone() == frozenset()
            seen = len(changes)
            await leaving.leave()
            await until("it is gone", lambda: watching.gone() == {left}, within_s=30)
            assert len(changes) > seen


async def test_fences_grow_across_processes(url: str) -> None:
    async with member(url) as (one, _), member(url) as (other, _):
        found = [await (one, other)[number % 2].fence() for number in range(10)]
        assert found == sorted(set(found)) and found[0] > 0


async def test_an_engine_that_is_killed_and_starts_empty_makes_no_member_look_gone(
    engine: EngineServer, url: str
) -> None:
    async with member(url) as (one, _), member(url) as (other, other_id):
        engine.kill()
        await until("both notice", lambda: not (one.connected or other.connected), within_s=60)
        assert one.gone() == frozenset() and await one.fence() == 0
        await engine.restart_empty()
        await until("both are back", lambda: one.connected and other.connected, within_s=60)
        assert one.gone() <= {other_id}  # it may have come back a moment later
        await until("all are registered again", lambda: one.gone() == frozenset(), within_s=30)
        await other.leave()
        await until("it is gone", lambda: one.gone() == {other_id}, within_s=30)


async def test_a_frozen_engine_is_unavailable_within_seconds(engine: EngineServer, url: str) -> None:
    async with member(url) as (one, _):
        engine.freeze()
        await until("it is noticed", lambda: not one.connected, within_s=30)
        assert await one.fence() == 0
        engine.thaw()
        await until("it is back", lambda: one.connected, within_s=60)


async def test_a_member_that_is_cut_off_for_longer_than_its_session_registers_again(url: str) -> None:
    async with member(url) as (staying, staying_id), distant(url) as (one, one_id, door):
        door.cut()
        await until("the session expires", lambda: staying.gone() == {one_id}, within_s=30)
        await until("it notices", lambda: not one.connected, within_s=30)
        door.heal()
        await until("it registers again", lambda: one.connected and staying.gone() == frozenset(), within_s=30)
        assert one.gone() == frozenset(), "no peer left meanwhile"
        await staying.leave()
        await until("it watches again", lambda: one.gone() == {staying_id}, within_s=30)


async def test_what_happens_while_the_watch_is_lost_is_seen_afterwards(url: str) -> None:
    """The connections break, and the session goes on."""
    async with member(url) as (leaving, left), distant(url) as (one, one_id, door):
        await until("it is seen", lambda: one_id in leaving._members._present, within_s=30)
        door.cut()
        door.heal()
        await leaving.leave()
        await until("it is connected", lambda: one.connected, within_s=30)
        async with member(url) as (_, joined):
            await until("it sees who is there", lambda: one._members._present == {one_id, joined}, within_s=30)
            assert one.gone() <= {left}
        await until("it sees who leaves", lambda: joined in one.gone(), within_s=30)


@pytest.fixture
async def etcd(engine: EngineServer) -> AsyncIterator[httpx2.AsyncClient]:
    if not isinstance(engine, EtcdServer):
        pytest.skip("of etcd only")
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{engine.port}/v3", trust_env=False) as http:
        yield http


async def test_a_compaction_while_the_watch_is_lost_hides_nothing(url: str, etcd: httpx2.AsyncClient) -> None:
    """The history between the two watches is gone: the members are read, not replayed."""
    async with member(url) as (leaving, left), distant(url) as (one, one_id, door):
        await until("they see each other", lambda: one_id in leaving._members._present, within_s=30)
        door.cut()
        await leaving.leave()
        async with member(url) as (staying, staying_id):
            revision = (await etcd.post("/kv/range", json={"key": "AA=="})).json()["header"]["revision"]
            answer = await etcd.post("/kv/compaction", json={"revision": revision, "physical": True})
            assert answer.status_code == 200, answer.text
            door.heal()
            await until("it sees who is there", lambda: one._members._present == {one_id, staying_id}, within_s=30)
            assert one.gone() <= {left}
            assert await one.fence() > int(revision)
            await staying.leave()
            await until("it watches", lambda: staying_id in one.gone(), within_s=30)


async def test_a_lease_that_etcd_revokes_is_granted_again(url: str, etcd: httpx2.AsyncClient) -> None:
    async with member(url) as (staying, _), member(url) as (one, one_id):
        assert isinstance(one, EtcdCoordinator)
        await until("it is seen", lambda: one_id in staying._members._present, within_s=30)
        seen: list[frozenset[UUID]] = []
        staying.watch(lambda: seen.append(staying.gone()))
        assert (await etcd.post("/lease/revoke", json={"ID": one._lease})).status_code == 200
        await until("it is gone, and back", lambda: seen[-1:] == [frozenset()] and {one_id} in seen, within_s=30)
        await until("it knows", lambda: one.connected, within_s=30)


# Schedulers ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def scheduling(database: Database, url: str, peer: UUID) -> AsyncIterator[Scheduler]:
    """A scheduler beside a peer that stays the leader."""
    while True:
        bus, coordinator = PostgresBus(database), open_coordinator(url, prefix="unused")
        scheduler = Scheduler(database, bus, lease_s=LEASE_S, coordinator=coordinator)
        if assign_shards([scheduler.owner, peer])[LEADER_SHARD] == peer:
            break
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


@pytest.mark.requirement(24, 31)
async def test_a_frozen_or_killed_leader_is_replaced_long_before_its_lease_ends(fresh: Database, url: str) -> None:
    """Its lease is ten minutes. Frozen, it keeps its connections: only the engine knows. Killed: within two seconds."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.support.coordinated_scheduler", fresh.dsn, url], stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        while (line := await process.stdout.readline()) and line != b"ready\n":
            pass
        before = await rows_of(fresh)
        (peer,) = {shard.owner for shard in before.values()}
        assert peer is not None
        async with scheduling(fresh, url, peer) as scheduler:
            await until("the shards are shared", lambda: len(scheduler.shards) == SHARDS // 2, within_s=60)
            before = await rows_of(fresh)
            theirs = set(before) - set(scheduler.shards)
            assert LEADER_SHARD in theirs and not scheduler.leads()
            process.send_signal(signal.SIGSTOP)
            await until("all are taken over", lambda: len(scheduler.shards) == SHARDS, within_s=30)
            after = await rows_of(fresh)
            assert all(after[s].owner == scheduler.owner and after[s].epoch > before[s].epoch for s in theirs)
            assert scheduler.leads()
            process.send_signal(signal.SIGCONT)
            await until("it registers again and shares", lambda: len(scheduler.shards) == SHARDS // 2, within_s=60)
            assert not scheduler.leads()
            clock = RunningTime()
            process.kill()
            await until("all are taken over", lambda: len(scheduler.shards) == SHARDS, within_s=30)
            took_s = clock.stop()
            assert scheduler.leads()
            last = await rows_of(fresh)
            assert all(last[shard].epoch >= after[shard].epoch for shard in last), "epochs only grow"
        assert took_s < TAKEOVER_S
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def rows_of(database: Database) -> dict[int, shards.ShardLease]:
    async with database.connection() as connection:
        return {shard.shard: shard for shard in await shards.list_shards(connection)}


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

"""TLS, users and passwords of engines, against real servers with the rights that the documentation asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from mainspring import ports
from mainspring.backends.etcd_coordinator import EtcdCoordinator
from mainspring.backends.redis_bus import RedisBus
from mainspring.backends.redis_cache import RedisCache
from mainspring.backends.redis_delays import RedisDelays
from mainspring.backends.redis_fire_lock import RedisFireLock
from mainspring.backends.redis_rates import RedisRates
from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator
from mainspring.domain.errors import Invalid
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from tests.support.engine_servers import SecureEtcdServer, SecureRedisServer, ZooKeeperServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[SecureRedisServer]:
    server = SecureRedisServer(tmp_path / "redis")
    await server.start()
    yield server
    server.kill()


async def test_redis_with_tls_and_a_user_of_few_rights(fresh: Database, redis: SecureRedisServer) -> None:
    bus = RedisBus(redis.url, PostgresBus(fresh), prefix="mainspring-test")
    cache, rates = RedisCache(redis.url, prefix="mainspring-test"), RedisRates(redis.url, prefix="mainspring-test")
    delays, lock = RedisDelays(redis.url, prefix="mainspring-test"), RedisFireLock(redis.url, prefix="mainspring-test")
    bus.subscribe(ports.QUEUED, lambda _: None, on_gap=lambda: None)
    engines = (bus, cache, rates, delays, lock)
    for one in engines:
        await one.start()
    try:
        for one in engines:
            await one.ready()
        bus.publish(ports.QUEUED, "1")
        found = await cache.look("key", oldest_s=1)
        assert found is not None
        cache.keep("key", b"value", ["label"], began=found.at, oldest_s=60)
        again = await cache.look("key", oldest_s=60)
        assert again is not None and again.value == b"value"
        cache.changed(["label"])
        changed = await cache.look("key", oldest_s=60)
        assert changed is not None and changed.value is None
        taken = await rates.take([ports.Budget("token:x", 1.0, 10.0)])
        assert taken is not None and taken[0].wait_s == 0
        delays.keep({(1, 1): [1_000]}, ends={})
        assert await delays.take([(1, 1)], 500) == ports.Upcoming(0, 1_000)
        assert await lock.refused([ports.DueInstant(1, 2, 3, 4)]) == set()
        assert await lock.refused([ports.DueInstant(1, 1, 3, 4)]) == {1}
        assert all(one.connected for one in engines)
    finally:
        for one in engines:
            await one.stop()


async def test_redis_with_a_wrong_password_or_without_the_rights(redis: SecureRedisServer) -> None:
    for url, prefix in ((redis.url.replace("correct", "wrong"), "mainspring-test"),):
        with pytest.raises(Invalid, match=r"--cache rediss://localhost:\d+: "):
            await RedisCache(url, prefix=prefix).start()
    foreign = RedisCache(redis.url, prefix="other")  # keys that its user may not use
    await foreign.start()
    try:
        await foreign.ready()
        assert await foreign.look("key", oldest_s=1) is None
        await until("it counts as lost", lambda: not foreign.connected, within_s=30)
    finally:
        await foreign.stop()


async def test_redis_whose_certificate_is_not_trusted_is_unavailable(redis: SecureRedisServer) -> None:
    cache = RedisCache(redis.url.partition("?")[0], prefix="mainspring-test")
    await cache.start()
    try:
        await cache.ready()
        assert not cache.connected
    finally:
        await cache.stop()


async def test_etcd_with_tls_and_a_password(tmp_path: Path) -> None:
    server = SecureEtcdServer(tmp_path / "etcd")
    await server.start()
    try:
        await server.enable_passwords()
        good = EtcdCoordinator(server.url, prefix="mainspring-test")
        wrong = EtcdCoordinator(server.url.replace("correct", "wrong"), prefix="mainspring-test")
        anonymous = EtcdCoordinator(server.url.replace("mainspring:correct@", ""), prefix="mainspring-test")
        foreign = EtcdCoordinator(server.url, prefix="other")  # names that its user may not use
        untrusting = EtcdCoordinator(server.url.partition("?")[0], prefix="mainspring-test")
        try:
            for one, problem in (
                (wrong, "authentication failed, invalid user ID or password"),
                (anonymous, "user name is empty"),
                (foreign, "permission denied"),
            ):
                with pytest.raises(Invalid, match=rf"--coordinator etcds://localhost:\d+: .*{problem}"):
                    await one.join(uuid4(), "a scheduler")
            for one in (good, untrusting):
                await one.join(uuid4(), "a scheduler")
            await until("it is connected", lambda: good.connected, within_s=30)
            first = await good.fence()
            assert 0 < first < await good.fence()
            assert not wrong.connected and not untrusting.connected
            assert await wrong.fence() == await untrusting.fence() == 0
        finally:
            await asyncio.gather(*(one.stop() for one in (good, wrong, anonymous, foreign, untrusting)))
    finally:
        server.kill()


async def test_zookeeper_with_a_password_protects_its_nodes(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.folder.mkdir()
    await server.start()
    try:
        coordinator = ZooKeeperCoordinator(
            server.url.replace("://", "://mainspring:correct@"), prefix="mainspring-test"
        )
        me = uuid4()
        try:
            await coordinator.join(me, "a scheduler")
            await until("it is connected", lambda: coordinator.connected, within_s=60)
            assert await coordinator.fence() > 0
            await asyncio.to_thread(_intrude, server.url.removeprefix("zookeeper://"), str(me))
            for user in ("", "mainspring:wrong@"):
                intruder = ZooKeeperCoordinator(server.url.replace("://", f"://{user}"), prefix="mainspring-test")
                with pytest.raises(Invalid, match=r"--coordinator zookeeper://127\.0\.0\.1:\d+: .* refuses the cred"):
                    await intruder.join(uuid4(), "an intruder")
                await intruder.stop()
        finally:
            await coordinator.stop()
    finally:
        server.kill()


def _intrude(hosts: str, scheduler: str) -> None:
    client = KazooClient(hosts, timeout=5)
    client.start(10)
    try:
        for path in (f"/mainspring-test/schedulers/{scheduler}", "/mainspring-test/fence"):
            with pytest.raises(NoAuthError):
                client.set(path, b"")
        with pytest.raises(NoAuthError):
            client.get_children("/mainspring-test/schedulers")
    finally:
        client.stop()
        client.close()

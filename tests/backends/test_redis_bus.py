"""Hints over a real Redis, and over the database while it is killed, frozen or empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mainspring import ports
from mainspring.backends.engines import name_prefix, open_bus
from mainspring.backends.redis_bus import RedisBus
from mainspring.domain.errors import Invalid
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from mainspring.store.hints import hint
from tests.support.clocks import RunningTime
from tests.support.engine_servers import RedisServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio


LATE_S = 2.0
"""What the loss of Redis may cost, by docs/how-to/engines.md."""


class RecordingBus(PostgresBus):
    """Keeps the payloads that arrived with NOTIFY."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.notified: list[str] = []

    def _on_notification(self, _connection: Any, pid: int, channel: str, payload: object) -> None:
        self.notified.append(str(payload))
        super()._on_notification(_connection, pid, channel, payload)


class Process:
    """The bus of one process, and what it delivered."""

    def __init__(self, database: Database, url: str) -> None:
        self.below = RecordingBus(database)
        self.bus = RedisBus(url, self.below, prefix="mainspring-test")
        self.heard: list[str] = []
        self.gaps = 0
        self.bus.subscribe(ports.QUEUED, self.heard.append, on_gap=self._gap)

    def _gap(self) -> None:
        self.gaps += 1

    async def hears(self, payload: str, within_s: float = 30) -> None:
        await until(f"{payload} is delivered", lambda: payload in self.heard, within_s=within_s)


@pytest.fixture
async def pair(fresh: Database, redis: RedisServer) -> AsyncIterator[tuple[Process, Process]]:
    """Two processes that share a database and Redis."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(Database(fresh.dsn, size=2))
        here, there = Process(fresh, redis.url), Process(other, redis.url)
        for process in (here, there):
            await process.bus.start()
            stack.push_async_callback(process.bus.stop)
        for process in (here, there):
            await process.bus.ready()
        await until("both are connected", lambda: here.bus.connected and there.bus.connected, within_s=30)
        yield here, there


async def test_hints_of_statements_go_through_redis_and_not_through_notify(
    pair: tuple[Process, Process], fresh: Database
) -> None:
    here, there = pair
    async with fresh.connection() as connection:
        for rank in (7, 5, 9):
            hint(connection, ports.QUEUED, "12", lowest=rank)
    await there.hears("12 5")
    assert here.heard == ["12 5"] and there.heard == ["12 5"]
    assert there.below.notified == [] and here.below.notified == []


async def test_a_killed_redis_is_replaced_by_the_database_and_used_again(
    pair: tuple[Process, Process], redis: RedisServer
) -> None:
    here, there = pair
    redis.kill()
    await until("both notice", lambda: not (here.bus.connected or there.bus.connected), within_s=30)
    here.bus.publish(ports.QUEUED, "1", lowest=1)
    await there.hears("1 1")
    assert there.below.notified == ["1 1"]
    gaps = there.gaps
    await redis.restart_empty()
    await until("both are back", lambda: here.bus.connected and there.bus.connected, within_s=30)
    assert there.gaps > gaps, "a subscriber checks for what it missed"
    here.bus.publish(ports.QUEUED, "2", lowest=2)
    await there.hears("2 2")
    assert there.below.notified == ["1 1"]


async def test_hints_given_to_a_frozen_redis_arrive_through_the_database_within_2_s(
    pair: tuple[Process, Process], redis: RedisServer
) -> None:
    """The last is delivered within LATE_S of the freeze, not counting time in which this process did not run."""
    here, there = pair
    clock = RunningTime()
    redis.freeze()
    for number in range(50):
        here.bus.publish(ports.QUEUED, str(number), lowest=1)
    for number in range(50):
        await there.hears(f"{number} 1")
    late_s = clock.stop()
    assert not here.bus.connected
    assert late_s < LATE_S
    redis.thaw()
    await until("both are back", lambda: here.bus.connected and there.bus.connected, within_s=30)


async def test_a_bus_starts_without_redis(fresh: Database, tmp_path: Path) -> None:
    absent = RedisServer(tmp_path / "absent")
    process = Process(fresh, absent.url)
    await process.bus.start()
    try:
        await process.bus.ready()
        process.bus.publish(ports.QUEUED, "1", lowest=1)
        assert process.heard == ["1 1"] and not process.bus.connected
    finally:
        await process.bus.stop()


async def test_refused_credentials_are_an_error_at_start(fresh: Database, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    server.password = "correct"
    await server.start()
    try:
        for url in (f"redis://127.0.0.1:{server.port}", f"redis://:wrong@127.0.0.1:{server.port}"):
            with pytest.raises(Invalid, match=r"--bus redis://127\.0\.0\.1:\d+: ") as refused:
                await RedisBus(url, PostgresBus(fresh), prefix="test").start()
            assert "wrong" not in str(refused.value).partition(": ")[0]
        bus = RedisBus(server.url, PostgresBus(fresh), prefix="test")
        await bus.start()
        await asyncio.wait_for(bus.ready(), 30)
        assert bus.connected
        await bus.stop()
    finally:
        server.kill()


def test_engines_are_chosen_by_url() -> None:
    below = PostgresBus(Database("postgresql:///x"))
    assert open_bus(None, below, prefix="p") is below
    assert isinstance(open_bus("rediss://user:secret@redis.example", below, prefix="p"), RedisBus)
    with pytest.raises(Invalid, match=r"--bus kafka://broker: unknown engine; use redis://HOST"):
        open_bus("kafka://me:secret@broker", below, prefix="p")
    assert name_prefix("postgresql://u:p@host/orders?sslmode=require") == "mainspring-orders"
    assert name_prefix("postgresql:///?host=/run") == "mainspring"

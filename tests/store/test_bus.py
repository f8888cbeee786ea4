"""Hints: noted by statements, sent after the commit, delivered in this process at once and to others in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mainspring import ports
from mainspring.store import bus as bus_module
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database, notify
from mainspring.store.hints import hint


class Heard:
    """The payloads of all channels that a bus delivered, in order."""

    def __init__(self, bus: PostgresBus, *channels: str) -> None:
        self.payloads: list[str] = []
        self._more = asyncio.Event()
        for channel in channels:
            bus.subscribe(channel, self._hear, on_gap=lambda: None)

    def _hear(self, payload: str) -> None:
        self.payloads.append(payload)
        self._more.set()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(20):
            while len(self.payloads) < count:
                self._more.clear()
                await self._more.wait()
        return self.payloads


@asynccontextmanager
async def running(bus: PostgresBus) -> AsyncIterator[PostgresBus]:
    await bus.start()
    try:
        await bus.ready()
        yield bus
    finally:
        await bus.stop()


@asynccontextmanager
async def two_processes(database: Database) -> AsyncIterator[tuple[PostgresBus, Heard, Heard]]:
    """The bus of this process, what it delivers, and what the bus of another process delivers."""
    async with Database(database.dsn, size=2) as other:
        here, there = PostgresBus(database), PostgresBus(other)
        near, far = Heard(here, ports.QUEUED, ports.SETTINGS), Heard(there, ports.QUEUED, ports.SETTINGS)
        async with running(there), running(here):
            yield here, near, far


async def test_hints_are_delivered_here_at_once_and_sent_to_other_processes(database: Database) -> None:
    async with two_processes(database) as (_, near, far):
        async with database.transaction() as connection:
            hint(connection, ports.SETTINGS, "7")
            assert near.payloads == []
        assert near.payloads == ["7"], "not when the block ended"
        assert await far.until(1) == ["7"]


async def test_own_notifications_are_delivered_once(database: Database) -> None:
    async with two_processes(database) as (here, near, far):
        for n in range(3):
            here.publish(ports.SETTINGS, str(n))
            await far.until(n + 1)
        async with Database(database.dsn, size=1) as third, third.connection() as connection:
            hint(connection, ports.SETTINGS, "end")
        await far.until(4)
        assert await near.until(4) == ["0", "1", "2", "end"]


async def test_equal_hints_of_a_block_are_one_with_the_lowest_number(database: Database) -> None:
    async with two_processes(database) as (_, near, far):
        async with database.hot() as connection:
            for line, rank in (("3", 9), ("3", 4), ("5", 1), ("3", 6)):
                hint(connection, ports.QUEUED, line, lowest=rank)
        assert near.payloads == ["3 4", "5 1"]
        assert await far.until(2) == ["3 4", "5 1"]


async def test_a_block_that_fails_still_sends_its_hints(database: Database) -> None:
    async with two_processes(database) as (_, near, far):
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with database.transaction() as connection:
                hint(connection, ports.SETTINGS, "7")
                raise ZeroDivisionError
        assert near.payloads == ["7"] and await far.until(1) == ["7"]


async def test_hints_of_one_block_do_not_appear_in_the_next(database: Database) -> None:
    async with two_processes(database) as (_, near, _far):
        async with database.connection() as connection:
            hint(connection, ports.SETTINGS, "1")
        async with database.connection() as connection:
            hint(connection, ports.SETTINGS, "2")
        assert near.payloads == ["1", "2"]


async def test_a_database_without_a_bus_sends_its_hints_before_the_block_returns(database: Database) -> None:
    async with two_processes(database) as (_, _near, far), Database(database.dsn, size=1) as alone:
        async with alone.transaction() as connection:
            hint(connection, ports.SETTINGS, "7")
        assert await far.until(1) == ["7"]


async def test_hints_that_gather_are_sent_in_one_statement(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    async def counting(connection: Any, hints: Any) -> None:
        sent.append([payload for _, payload in hints])
        await notify(connection, hints)

    monkeypatch.setattr(bus_module, "notify", counting)
    async with two_processes(database) as (here, _near, far):
        for n in range(50):
            here.publish(ports.SETTINGS, str(n % 25))
        assert sorted(await far.until(25)) == sorted(str(n) for n in range(25))
    assert len(sent) == 1


async def test_hints_published_without_a_connection_are_sent_once_there_is_one(database: Database) -> None:
    async with Database(database.dsn, size=2) as other:
        there, here = PostgresBus(other), PostgresBus(database)
        far = Heard(there, ports.SETTINGS)
        async with running(there):
            here.publish(ports.SETTINGS, "early")
            async with running(here):
                assert await far.until(1) == ["early"]


async def test_a_bus_sends_what_is_pending_when_it_stops(database: Database) -> None:
    async with Database(database.dsn, size=2) as other:
        there = PostgresBus(other)
        far = Heard(there, ports.SETTINGS)
        async with running(there):
            here = PostgresBus(database)
            await here.start()
            await here.ready()
            here.publish(ports.SETTINGS, "last")
            await here.stop()
            assert await far.until(1) == ["last"]


async def test_a_subscriber_that_fails_does_not_disturb_the_others(database: Database) -> None:
    bus = PostgresBus(database)

    def fail(_: str) -> None:
        raise ZeroDivisionError

    bus.subscribe(ports.SETTINGS, fail, on_gap=lambda: None)
    heard = Heard(bus, ports.SETTINGS)
    async with running(bus):
        bus.publish(ports.SETTINGS, "7")
        assert heard.payloads == ["7"]


async def test_a_payload_too_long_for_notify_is_delivered_here_only(database: Database) -> None:
    async with two_processes(database) as (here, near, far):
        here.publish(ports.SETTINGS, "x" * 8000)
        here.publish(ports.SETTINGS, "x" * 7999)
        assert len(near.payloads) == 2
        assert [len(payload) for payload in await far.until(1)] == [7999]


async def test_a_transaction_commits_before_its_hints_are_sent(database: Database) -> None:
    asked: list[str] = []
    async with Database(database.dsn, size=1) as alone, alone.transaction() as connection:
        connection.add_query_logger(lambda logged: asked.append(logged.query))
        await connection.execute("CREATE TEMPORARY TABLE changed (n int)")
        hint(connection, ports.SETTINGS, "7")
    assert asked[1] == "COMMIT;" and "pg_notify" in asked[2] and len(asked) == 3, asked

"""Events are announced only while some process watches, and reach it wherever it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import ports
from mainspring.announce import Announcer
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.embedded.server import EmbeddedServer
from mainspring.store import executions
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from tests.conftest import clone, started
from tests.support.processes import until, until_async

pytestmark = pytest.mark.anyio


@dataclass
class Process:
    """What one server process has: a bus, an announcer, and a live view that may watch."""

    bus: PostgresBus
    announcer: Announcer
    watches: bool = False
    events: list[str] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, payload: str) -> None:
        self.events.append(payload)
        self.more.set()

    async def heard(self, execution: UUID) -> None:
        async with asyncio.timeout(30):
            while not any(str(execution) in payload for payload in self.events):
                self.more.clear()
                await self.more.wait()


@asynccontextmanager
async def processes(database: Database, count: int) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            bus = PostgresBus(await stack.enter_async_context(Database(database.dsn, size=1)))
            process = Process(bus, Announcer(bus))
            process.announcer.add_watch(lambda process=process: process.watches)  # type: ignore[misc]
            bus.subscribe(ports.EVENTS, process.hear, on_gap=lambda: None)
            for service in (bus, process.announcer):
                await service.start()
                stack.push_async_callback(service.stop)
            await bus.ready()
            found.append(process)
        yield found


async def test_a_watcher_of_this_process_hears_events_that_are_not_sent(database: Database) -> None:
    async with processes(database, 2) as (here, there):
        here.watches, execution, after = True, uuid4(), uuid4()
        here.announcer.announce("finished", [execution])
        await here.heard(execution)
        here.bus.publish(ports.EVENTS, f'"{after}"')
        await there.heard(after)  # what was published before has been delivered
        assert not any(str(execution) in payload for payload in there.events)


async def test_a_watcher_of_another_process_hears_events(database: Database) -> None:
    async with processes(database, 2) as (here, there):
        there.watches = True
        assert there.announcer.say_watching()
        assert not there.announcer.say_watching(), "it has just said so"
        await until("the hint", lambda: here.announcer._others_watch, within_s=30)
        execution = uuid4()
        here.announcer.announce("finished", [execution])
        await there.heard(execution)


async def test_a_process_repeats_that_it_watches(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.announce.WATCH_S", 0.05)
    async with processes(database, 2) as (here, there):
        there.watches = True
        await until("the hint", lambda: here.announcer._others_watch, within_s=30)


async def test_an_execution_without_watchers_causes_no_announcement(
    postgres: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str] = []
    publish = PostgresBus.publish

    def noting(bus: PostgresBus, channel: str, payload: str, **how: Any) -> None:
        published.append(channel)
        publish(bus, channel, payload, **how)

    monkeypatch.setattr(PostgresBus, "publish", noting)
    async with started(await clone(postgres)) as cluster, cluster.worker(), cluster.client() as client:
        await client.create_job({"name": "unwatched", "task": {"kind": "noop"}})
        execution = (await client.trigger("unwatched")).execution_id

        async def has_succeeded() -> bool:
            async with cluster.database.connection() as connection:  # a read through the API would be a watcher
                found = await executions.execution_by_id(connection, tenant=DEFAULT_TENANT, execution_id=execution)
            return found is not None and found.state == "succeeded"

        await until_async("its success", has_succeeded, within_s=60)
        assert ports.EVENTS not in published
        again = (await client.trigger("unwatched")).execution_id
        await client.wait(again, timeout_s=60)
        assert ports.QUEUED in published

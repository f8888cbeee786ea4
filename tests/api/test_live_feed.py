"""The live feed sends each state of an execution once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.api.live import LiveUpdates
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.domain.events import Event, Kind
from mainspring.ports import EVENTS
from tests.conftest import Cluster
from tests.support.api_jobs import script
from tests.support.processes import until

pytestmark = pytest.mark.anyio

KINDS: list[Kind] = ["started", "finished", "finished"]


class Bus:
    """A bus on which the test itself publishes."""

    def __init__(self) -> None:
        self.receive: Callable[[str], None] = lambda _: None

    def subscribe(self, channel: str, receive: Callable[[str], None], on_gap: object) -> None:
        if channel == EVENTS:
            self.receive = receive

    def publish(self, channel: str, payload: str, *, only_here: bool = False) -> None: ...


async def test_events_that_arrive_after_the_end_are_one_line(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("true"))
    async with cluster.worker():
        done = [await client.wait((await client.trigger(job.name)).execution_id) for _ in range(2)]
    bus = Bus()
    live = LiveUpdates(cluster.database, bus, Announcer(bus))  # type: ignore[arg-type]
    seen: list[wire.Execution] = []
    changes = live.changes(tenant=1, silence_s=0.05)
    assert await anext(changes) == []
    for kind in KINDS:
        bus.receive(encode([Event(kind, [execution.execution_id for execution in done])]).decode())
    while found := await anext(changes):
        seen += found
    assert Counter(execution.execution_id for execution in seen) == {e.execution_id: 1 for e in done}


async def test_the_stream_of_a_real_server_repeats_nothing(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("true"))
    seen: Counter[tuple[UUID, str, int]] = Counter()

    async def read() -> None:
        async with aclosing(client.feed()) as feed:
            async for execution in feed:
                seen[execution.execution_id, execution.state, execution.attempt] += 1

    reading = asyncio.create_task(read())
    await until("the stream is open", lambda: bool(cluster.context.live._watchers), within_s=20)
    async with cluster.worker():
        done = [await client.wait((await client.trigger(job.name)).execution_id) for _ in range(20)]
        ends = {(execution.execution_id, "succeeded", 1) for execution in done}
        await until("all ends have arrived", lambda: seen.keys() >= ends, within_s=20)
    reading.cancel()
    assert set(seen.values()) == {1}

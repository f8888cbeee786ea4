"""Messages that start executions, and events of executions, while Kafka is harmed: past the door that a test cuts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any
from uuid import UUID

import confluent_kafka
import msgspec
from confluent_kafka import admin

from mainspring import wire
from mainspring.client import AsyncClient
from tests.support.engine_servers import KafkaServer
from tests.support.processes import until, until_async
from tests.support.recording_worker import QUEUE, WAIT_S
from tests.support.topic_reader import Tail

ORDERS, EVENTS = "engines-orders", "engines-events"
ORDERED = "ordered"
EACH = 5
_NEW_TOPIC: Any = admin.NewTopic  # type: ignore[attr-defined]


class KafkaLoad:
    """A topic with orders, each of which starts one execution, and the event stream as another program reads it."""

    def __init__(self, server: KafkaServer, client: AsyncClient) -> None:
        self._client = client
        self._settings: Any = {"bootstrap.servers": server.inner, "log_level": 0}
        self._numbers = count()
        self._sent: list[str] = []
        self._tail = Tail(server.inner, EVENTS)

    async def open(self) -> None:
        await self._client.create_job({"name": ORDERED, "task": {"kind": "noop"}, "queue": QUEUE, "overlap": "allow"})
        await asyncio.to_thread(self._create)
        source = {"kind": "topic", "cluster": "main", "topic": ORDERS, "start": "earliest"}
        trigger = {"name": ORDERED, "job": ORDERED, "source": source, "params": {"order": "{{body.id}}"}}
        await self._client.add_trigger(msgspec.convert(trigger, wire.NewTrigger))
        self._tail.__enter__()

    def close(self) -> None:
        self._tail.__exit__()

    async def send(self) -> None:
        """Send some orders, also while the servers are cut off from the broker."""
        orders = [f"order {next(self._numbers)}" for _ in range(EACH)]
        self._sent += orders
        await asyncio.to_thread(self._send, orders)

    async def emptied(self) -> None:
        await asyncio.to_thread(self._create)

    async def settled(self, ended: Iterable[UUID]) -> None:
        """Each order started one execution, and the stream has the life of each of these executions in its order."""
        wanted = Counter(self._sent)

        async def all_ordered() -> bool:
            return await self._ordered() == wanted

        try:
            await until_async("each order to start one execution", all_ordered, within_s=WAIT_S)
        except AssertionError as error:
            trigger = await self._client.get_trigger(ORDERED)
            raise AssertionError(f"{error}: {await self._ordered()}, {trigger.last_error}") from None
        missing = {str(execution) for execution in ended}
        await until("the stream to have every end", lambda: missing <= self._ended(), within_s=WAIT_S)
        for execution in missing:
            events = [e["event"] for e in self._tail.events if e["data"].get("execution_id") == execution]
            first = list(dict.fromkeys(event.removeprefix("execution.") for event in events))
            lives = (["created", "started", "succeeded"], ["created", "cancelled"], ["created", "started", "cancelled"])
            assert [event for event in first if event != "queued"] in lives, first  # directly handed over: never queued

    def _ended(self) -> set[str]:
        ends = ("execution.succeeded", "execution.cancelled")
        return {e["data"]["execution_id"] for e in self._tail.events if e["event"] in ends}

    async def _ordered(self) -> Counter[str]:
        page = await self._client.executions(job=ORDERED, limit=500)
        found = [await self._client.execution(each.execution_id) for each in page.items]
        return Counter(str((each.params or {})["order"]) for each in found)

    def _create(self) -> None:
        client = admin.AdminClient(self._settings)
        client.create_topics([_NEW_TOPIC(ORDERS, 2, 1)])[ORDERS].result(WAIT_S)

    def _send(self, orders: list[str]) -> None:
        producer = confluent_kafka.Producer(self._settings)
        for order in orders:
            producer.produce(ORDERS, msgspec.json.encode({"id": order}), order.encode())
        assert producer.flush(WAIT_S) == 0

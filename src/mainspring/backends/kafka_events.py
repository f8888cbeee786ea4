"""The event stream on Kafka: one topic, keyed by job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mainspring.backends.kafka_client import KafkaEngine, Topic, TopicWriter
from mainspring.backends.kafka_url import KafkaAddress
from mainspring.domain.errors import Unavailable
from mainspring.service import Service

PARTITIONS = 12
KEPT_S = 7 * 86_400.0
LINGER_MS = 5


class KafkaEvents(Service):
    """Implements ports.EventStream. The path of the URL names the topic."""

    def __init__(self, address: KafkaAddress, topic: str) -> None:
        self.topic = topic
        self.engine = KafkaEngine(replace(address, prefix=""), "events", [Topic(topic, PARTITIONS, KEPT_S)])
        self._writer: TopicWriter | None = None

    @property
    def available(self) -> bool:
        return self.engine.connected

    async def start(self) -> None:
        await self.engine.start()
        self._writer = TopicWriter(self.engine, ordered=True, linger_ms=LINGER_MS)

    async def stop(self) -> None:
        await self.engine.stop()
        if self._writer is not None:
            await self._writer.stop()

    async def publish(self, events: Sequence[tuple[str, bytes]]) -> None:
        if self._writer is None:
            raise Unavailable("the event stream is not open yet")
        await self._writer.append(self.topic, [(key.encode(), value) for key, value in events])

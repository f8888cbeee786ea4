"""The queue on Kafka: ready executions in three topics by priority, keyed by job, shared by the dispatchers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from mainspring.backends.kafka_client import KafkaEngine, Record, Topic, TopicReader, TopicWriter
from mainspring.backends.kafka_url import KafkaAddress
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.service import Service
from mainspring.telemetry import metrics
from mainspring.wire.ready_execution import ReadyRef, read_ready

LANES = {"jobs.high": (7, 600), "jobs.normal": (4, 300), "jobs.low": (0, 100)}
"""The lowest priority of each topic, and how many of its records are read at a time: its weight."""
PARTITIONS = 64
KEPT_S = 3600.0
"""A record is worth something for seconds only: the slow poll finds what it names."""
GROUP = "dispatchers"


class KafkaQueue(Service):
    """Implements ports.Queue."""

    def __init__(self, address: KafkaAddress) -> None:
        self.engine = KafkaEngine(address, "queue", [Topic(name, PARTITIONS, KEPT_S) for name in LANES])
        self._writer: TopicWriter | None = None
        self._deliver: Callable[[Sequence[ReadyRef]], None] | None = None

    @property
    def available(self) -> bool:
        return self.engine.connected

    def deliver_to(self, deliver: Callable[[Sequence[ReadyRef]], None]) -> None:
        self._deliver = deliver

    async def start(self) -> None:
        await self.engine.start()
        self._writer = TopicWriter(self.engine, linger_ms=1)
        if self._deliver is not None:
            for name, (_, weight) in LANES.items():
                self.engine.add_reader(TopicReader(self.engine, name, group=GROUP, handle=self._handle, batch=weight))

    async def stop(self) -> None:
        await self.engine.stop()
        if self._writer is not None:
            await self._writer.stop()

    async def publish(self, ready: Sequence[tuple[int, UUID, bytes]]) -> None:
        if self._writer is None:
            raise Unavailable("the queue is not open yet")
        lanes: dict[str, list[tuple[bytes, bytes]]] = {}
        for priority, job_id, value in ready:
            lanes.setdefault(lane_of(priority), []).append((str(job_id).encode(), value))
        for name, records in lanes.items():
            await self._writer.append(name, records)

    async def _handle(self, records: list[Record]) -> None:
        assert self._deliver is not None
        found = []
        for record in records:
            try:
                found.append(read_ready(record.value))
            except MainspringError:
                metrics.QUEUE_RECORDS.labels("unreadable").inc()
        metrics.QUEUE_RECORDS.labels("received").inc(len(found))
        self._deliver(found)


def lane_of(priority: int) -> str:
    """The topic of a priority."""
    return next(name for name, (lowest, _) in LANES.items() if priority >= lowest)

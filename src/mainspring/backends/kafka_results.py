"""The result stream on Kafka: one topic, keyed by session, kept for seven days."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog

from mainspring.backends.kafka_client import KafkaEngine, Record, Topic, TopicReader, TopicWriter
from mainspring.backends.kafka_url import KafkaAddress
from mainspring.domain.errors import Unavailable
from mainspring.ports import SignedRecord
from mainspring.service import Loops, Service
from mainspring.telemetry import metrics

log = structlog.get_logger()

TOPIC = GROUP = "results"
PARTITIONS = 12
KEPT_S = 7 * 86_400.0
SIGNATURE = "mainspring-signature"
LAG_S = 5.0
DRAIN_S = 30.0
"""Longest wait for records that were appended before a session is declared lost."""
GIVE_UP_S = 10.0
"""A cluster that has been unavailable for longer is not waited for."""
CHECK_S = 0.1


class KafkaResults(Service):
    """Implements ports.ResultStream."""

    def __init__(self, address: KafkaAddress, *, creates_topic: bool) -> None:
        topics = [Topic(TOPIC, PARTITIONS, KEPT_S)] if creates_topic else []
        self.engine = KafkaEngine(address, "results", topics)
        self._writer: TopicWriter | None = None
        self._settle: Callable[[Sequence[SignedRecord]], Awaitable[None]] | None = None
        self._loops = Loops("kafka results")

    def settle_with(self, settle: Callable[[Sequence[SignedRecord]], Awaitable[None]]) -> None:
        """Call before `start`."""
        self._settle = settle

    async def start(self) -> None:
        await self.engine.start()
        self._writer = TopicWriter(self.engine)
        if self._settle is not None:
            self.engine.add_reader(TopicReader(self.engine, TOPIC, group=GROUP, handle=self._handle))
            self._loops.forever("lag", self._measure_lag)

    async def stop(self) -> None:
        await self._loops.stop()
        await self.engine.stop()
        if self._writer is not None:
            await self._writer.stop()

    async def append(self, record: SignedRecord) -> None:
        if self._writer is None:
            raise Unavailable("the result stream is not open yet")
        key = str(record.session_id).encode()
        await self._writer.append(TOPIC, [(key, record.value)], {SIGNATURE: record.signature})

    async def drained(self) -> None:
        """Wait for records that were appended before; give up when the cluster is gone, or after half a minute."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_S
        ends: dict[int, int] | None = None
        while loop.time() < deadline and self.engine.lost_for_s() < GIVE_UP_S:
            try:
                ends = ends or await self.engine.ends(TOPIC)
                if await self.engine.behind(TOPIC, GROUP, ends) == 0:
                    return
            except Unavailable as error:
                log.debug("results.drain_failed", error=error.message)
            await asyncio.sleep(CHECK_S)
        log.warning("results.not_drained", url=self.engine.address.shown)

    async def _handle(self, records: list[Record]) -> None:
        assert self._settle is not None
        await self._settle([found for record in records if (found := _signed(record)) is not None])

    async def _measure_lag(self) -> None:
        if self.engine.connected:
            try:
                metrics.ENGINE_LAG.labels("results", "kafka").set(await self.engine.lag(TOPIC, GROUP))
            except Unavailable as error:
                log.debug("engine.lag_failed", role="results", error=error.message)
        await asyncio.sleep(LAG_S)


def _signed(record: Record) -> SignedRecord | None:
    try:
        session_id = UUID(record.key.decode())
    except ValueError:
        metrics.STREAMED_RESULTS.labels("unreadable").inc()
        return None
    return SignedRecord(session_id, record.value, record.headers.get(SIGNATURE, b""))

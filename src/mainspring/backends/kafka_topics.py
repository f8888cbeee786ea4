"""Topics of Kafka clusters that triggers read: a consumer group for each trigger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from mainspring.backends.kafka_client import KafkaEngine, Record, TopicReader
from mainspring.backends.kafka_url import KafkaAddress
from mainspring.clock import instant
from mainspring.domain.errors import Unavailable
from mainspring.domain.topic import Message, TopicSource
from mainspring.service import Service
from mainspring.telemetry import metrics

READ_BATCH = 200
ROLE = "triggers"


class KafkaTopics(Service):
    """Implements ports.Topics. Consumer groups are named `PREFIX-trigger-ID`."""

    def __init__(self, clusters: Mapping[str, KafkaAddress]) -> None:
        self.engines = {
            name: KafkaEngine(replace(address, prefix=""), ROLE, [], name=f"kafka {name}")
            for name, address in clusters.items()
        }
        self._lags: dict[str, dict[str, int]] = {name: {} for name in clusters}  # by group
        self._prefixes = {name: address.prefix for name, address in clusters.items()}

    async def start(self) -> None:
        for engine in self.engines.values():
            await engine.start()

    async def stop(self) -> None:
        for engine in self.engines.values():
            await engine.stop()

    def open(
        self,
        source: TopicSource,
        *,
        group: str,
        since_ms: float | None,
        handle: Callable[[list[Message]], Awaitable[None]],
    ) -> KafkaReading:
        engine = self.engines.get(source.cluster)
        if engine is None:
            raise Unavailable(f"there is no cluster {source.cluster!r}; an operator adds it with --kafka-triggers")
        name = f"{self._prefixes[source.cluster]}trigger-{group}"
        return KafkaReading(engine, source, name, since_ms, handle, lags=self._lags[source.cluster])


class KafkaReading:
    """Implements ports.TopicReading."""

    def __init__(
        self,
        engine: KafkaEngine,
        source: TopicSource,
        group: str,
        since_ms: float | None,
        handle: Callable[[list[Message]], Awaitable[None]],
        *,
        lags: dict[str, int],
    ) -> None:
        self._lags = lags
        self._engine, self._source, self._group, self._handle = engine, source, group, handle
        self._topic_id: str | None = None
        self._expected: dict[int, int] = {}  # the next offset of each partition
        self._reader = TopicReader(
            engine,
            source.topic,
            group=group,
            handle=self._handle_records,
            batch=READ_BATCH if source.batch == 1 else source.batch,
            within_s=0.0 if source.batch == 1 else source.within_s,
            since_ms=since_ms,
        )
        engine.add_reader(self._reader)

    async def stop(self) -> None:
        self._engine.remove_reader(self._reader)
        await self._reader.stop()
        self._lags.pop(self._group, None)
        self._publish_lag()

    async def lag(self) -> int:
        found = await self._engine.lag(self._source.topic, self._group)
        self._lags[self._group] = found
        self._publish_lag()
        return found

    def _publish_lag(self) -> None:
        metrics.ENGINE_LAG.labels(ROLE, self._engine.name).set(sum(self._lags.values()))

    async def _handle_records(self, records: list[Record]) -> None:
        """A topic that was created again begins at offset 0: its id is read where offsets do not continue."""
        firsts: dict[int, int] = {}
        for record in records:
            firsts.setdefault(record.partition, record.offset)
        if any(self._expected.get(partition) != offset for partition, offset in firsts.items()):
            self._topic_id = await self._engine.topic_id(self._source.topic)
        assert self._topic_id is not None
        await self._handle([_message(record, f"@{self._topic_id}") for record in records])
        self._expected |= {record.partition: record.offset + 1 for record in records}


def _message(record: Record, topic_key: str) -> Message:
    at = instant(record.at_ms).isoformat().replace("+00:00", "Z")
    return Message(
        record.topic,
        topic_key,
        record.partition,
        record.offset,
        at,
        record.key,
        dict(record.headers),
        record.value,
    )

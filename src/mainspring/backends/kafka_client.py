"""Kafka clients in threads of their own: the calls of confluent-kafka block, and the event loop must not.

`KafkaEngine` watches the cluster and keeps its topics, `TopicWriter` appends, `TopicReader` consumes. A cluster that
comes back empty has another id: its topics are created again, and readers begin at the start of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka as kafka
import structlog
from confluent_kafka import admin

from mainspring.backends.kafka_url import KafkaAddress
from mainspring.domain.errors import Invalid, Unavailable
from mainspring.service import Loops
from mainspring.telemetry import metrics

log = structlog.get_logger()

BEAT_S = 1.0
ANSWER_S = 3.0
"""A cluster that is silent for longer is unavailable."""
FIRST_TRIES = 6
MAX_MESSAGE_BYTES = 10_485_760
APPEND_S = 5.0
"""How long the cluster may take to store a record, on all replicas in sync."""
CREDENTIALS = (
    kafka.KafkaError._AUTHENTICATION,
    kafka.KafkaError.SASL_AUTHENTICATION_FAILED,
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    kafka.KafkaError._SSL,
)
READ_BATCH = 500
RETRY_S = 1.0
NO_OFFSET = -1001
_LATEST: Any = admin.OffsetSpec.latest()  # type: ignore[attr-defined, no-untyped-call]
_EARLIEST: Any = admin.OffsetSpec.earliest()  # type: ignore[attr-defined, no-untyped-call]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create where it does not exist. `partitions` of the URL count more."""

    name: str
    partitions: int
    keep_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read. `headers` has the last value of each name."""

    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: Mapping[str, bytes]
    topic: str = ""
    at_ms: float = 0.0


class KafkaEngine:
    """The connection of one process to a cluster, for one role of the engine."""

    def __init__(self, address: KafkaAddress, role: str, topics: Sequence[Topic], *, name: str = "kafka") -> None:
        self.address = address
        self.name = name
        self._role = role
        self._topics = topics
        self._errors: list[kafka.KafkaError] = []
        self._admin: Any = None
        self._connected = False
        self._cluster: str | None = None
        self._lost_at = float("-inf")
        self._readers: list[TopicReader] = []
        self._committed_readers: dict[str, Any] = {}  # by group
        self._committed_lock = threading.Lock()
        self._loops = Loops(f"kafka {role}")
        metrics.ENGINE_UP.labels(role, name).set(0)

    @property
    def connected(self) -> bool:
        return self._connected

    def lost_for_s(self) -> float:
        """How long the cluster has been unavailable; 0 while it is available."""
        return 0.0 if self._connected else asyncio.get_running_loop().time() - self._lost_at

    def name_of(self, topic: str) -> str:
        return f"{self.address.prefix}{topic}"

    async def start(self) -> None:
        """Raise Invalid if the cluster refuses the credentials. An unreachable one is no error."""
        self._lost_at = asyncio.get_running_loop().time()
        settings: dict[str, Any] = {**self.address.client, "error_cb": self._errors.append}
        try:
            self._admin = admin.AdminClient(settings)
        except kafka.KafkaException as error:
            self._forget_state()
            raise Invalid(f"{self.address.shown}: {error.args[0].str()}") from None
        try:
            await asyncio.to_thread(self._look_first)
            self._set_connected(True)
        except kafka.KafkaException as error:
            refused = next((e for e in [*self._errors, error.args[0]] if e.code() in CREDENTIALS), None)
            if refused is not None:
                self._forget_state()
                raise Invalid(f"{self.address.shown}: {refused.str()}") from None
            log.warning("engine.unreachable", role=self._role, url=self.address.shown, error=error.args[0].str())
        self._loops.forever("watch", self._watch)

    async def stop(self) -> None:
        await self._loops.stop()
        await asyncio.gather(*(reader.stop() for reader in self._readers))
        await asyncio.to_thread(self._close_committed_readers)
        self._forget_state()

    def _forget_state(self) -> None:
        """Without this, the process would go on reporting a cluster that it no longer uses as lost."""
        metrics.ENGINE_UP.remove(self._role, self.name)

    def add_reader(self, reader: TopicReader) -> None:
        self._readers.append(reader)
        reader.start()

    def remove_reader(self, reader: TopicReader) -> None:
        self._readers = [each for each in self._readers if each is not reader]

    async def _watch(self) -> None:
        await asyncio.sleep(BEAT_S)
        try:
            await asyncio.to_thread(self._look, ANSWER_S)
        except kafka.KafkaException as error:
            self._errors.clear()
            self._set_connected(False, error.args[0].str())
        else:
            self._set_connected(True)

    def _look_first(self) -> None:
        """In a thread: give the cluster some seconds to answer, and end at once when it refuses the credentials."""
        for left in range(FIRST_TRIES, 0, -1):
            try:
                return self._look(BEAT_S)
            except kafka.KafkaException as error:
                if left == 1 or any(e.code() in CREDENTIALS for e in [*self._errors, error.args[0]]):
                    raise

    def _look(self, within_s: float) -> None:
        """In a thread: read the cluster's metadata, create missing topics, detect another cluster."""
        try:
            found = self._admin.list_topics(timeout=within_s)
        except kafka.KafkaException:
            self._admin.poll(0)  # collects the errors behind it
            raise
        missing = [topic for topic in self._topics if self.name_of(topic.name) not in found.topics]
        for future in self._create(missing).values() if missing else ():
            try:
                future.result(within_s)
            except kafka.KafkaException as error:
                if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        if self._cluster not in (None, found.cluster_id):
            log.warning("engine.replaced", role=self._role, url=self.address.shown)
            for reader in self._readers:
                reader.begin_again()
        self._cluster = found.cluster_id

    def _create(self, topics: Sequence[Topic]) -> dict[str, Any]:
        made: dict[str, Any] = self._admin.create_topics(
            [
                admin.NewTopic(  # type: ignore[attr-defined]
                    self.name_of(topic.name),
                    num_partitions=self.address.partitions or topic.partitions,
                    replication_factor=self.address.replication,
                    config={
                        "retention.ms": str(int(topic.keep_s * 1000)),
                        "max.message.bytes": str(MAX_MESSAGE_BYTES),
                    },
                )
                for topic in topics
            ],
            request_timeout=ANSWER_S,
        )
        return made

    def _set_connected(self, connected: bool, error: str = "") -> None:
        if connected != self._connected:
            if connected:
                log.info("engine.connected", role=self._role, url=self.address.shown)
            else:
                self._lost_at = asyncio.get_running_loop().time()
                log.warning("engine.lost", role=self._role, url=self.address.shown, error=error)
        self._connected = connected
        metrics.ENGINE_UP.labels(self._role, self.name).set(connected)

    # Progress of readers -------------------------------------------------------------------------------

    async def ends(self, topic: str) -> dict[int, int]:
        """The offset behind the last record of each partition. Raises Unavailable."""
        return await self._offsets(topic, _LATEST)

    async def behind(self, topic: str, group: str, ends: Mapping[int, int]) -> int:
        """How many records before `ends` the group has not committed. Raises Unavailable."""
        name = self.name_of(topic)
        try:
            committed = await asyncio.to_thread(self._committed, name, group, list(ends))
        except kafka.KafkaException as error:
            raise Unavailable(f"{self.address.shown}: {error.args[0].str()}") from None
        firsts: dict[int, int] = {}
        if any(committed.get(p, NO_OFFSET) < 0 < end for p, end in ends.items()):
            firsts = await self._offsets(topic, _EARLIEST)
        total = 0
        for partition, end in ends.items():
            at = committed.get(partition, NO_OFFSET)
            total += max(0, end - (at if at >= 0 else firsts.get(partition, 0)))
        return total

    async def lag(self, topic: str, group: str) -> int:
        """How many records of the topic the group has not committed. Raises Unavailable."""
        return await self.behind(topic, group, await self.ends(topic))

    async def topic_id(self, topic: str) -> str:
        """The id that the cluster has given to a topic: another one if it was created again. Raises Unavailable."""

        def read() -> str:
            name = self.name_of(topic)
            found = self._admin.describe_topics(kafka.TopicCollection([name]), request_timeout=ANSWER_S)
            return str(found[name].result(ANSWER_S).topic_id)

        try:
            return await asyncio.to_thread(read)
        except (kafka.KafkaException, TimeoutError) as error:
            raise Unavailable(f"{self.address.shown}: {error}") from None

    async def _offsets(self, topic: str, spec: Any) -> dict[int, int]:
        def read() -> dict[int, int]:
            name = self.name_of(topic)
            found = self._admin.list_topics(name, timeout=ANSWER_S).topics[name]
            if found.error is not None:
                raise kafka.KafkaException(found.error)
            asked = {kafka.TopicPartition(name, partition): spec for partition in found.partitions}
            answers = self._admin.list_offsets(asked, request_timeout=ANSWER_S) if asked else {}
            return {tp.partition: future.result(ANSWER_S).offset for tp, future in answers.items()}

        try:
            return await asyncio.to_thread(read)
        except kafka.KafkaException as error:
            raise Unavailable(f"{self.address.shown}: topic {self.name_of(topic)}: {error.args[0].str()}") from None
        except TimeoutError:
            raise Unavailable(f"{self.address.shown}: no response within {ANSWER_S:g} s") from None

    def _committed(self, name: str, group: str, partitions: Sequence[int]) -> dict[int, int]:
        """In a thread: the offsets that the group has committed.

        Read by a consumer that never joins the group. The same call of the admin client ends the process if the
        group's coordinator is still loading: librdkafka 2.16 then reads the missing group of the admin client.
        """
        if not partitions:
            return {}
        with self._committed_lock:
            consumer = self._committed_readers.get(group)
            if consumer is None:
                settings = {**self.address.client, "group.id": self.name_of(group), "enable.auto.commit": False}
                consumer = kafka.Consumer({**settings, "error_cb": lambda error: None})
                self._committed_readers[group] = consumer
            wanted = [kafka.TopicPartition(name, partition) for partition in partitions]
            found = consumer.committed(wanted, timeout=ANSWER_S)
        failed = next((partition.error for partition in found if partition.error is not None), None)
        if failed is not None:
            raise kafka.KafkaException(failed)
        return {partition.partition: partition.offset for partition in found}

    def _close_committed_readers(self) -> None:
        with self._committed_lock:
            for consumer in self._committed_readers.values():
                consumer.close()
            self._committed_readers.clear()


class TopicWriter:
    """Appends records to topics of a cluster. With `ordered`, records of a key never overtake each other."""

    def __init__(self, engine: KafkaEngine, *, ordered: bool = False, linger_ms: int = 2) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._producer = kafka.Producer(
            {
                **engine.address.client,
                "acks": "all",
                "linger.ms": linger_ms,
                "compression.type": "lz4",
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "delivery.timeout.ms": int(APPEND_S * 1000),
                "request.timeout.ms": int(ANSWER_S * 1000),
                "queue.buffering.max.messages": 100_000,
                "max.in.flight.requests.per.connection": 1 if ordered else 5,
                "error_cb": lambda error: None,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="kafka writer", daemon=True)
        self._thread.start()

    async def append(
        self, topic: str, records: Sequence[tuple[bytes, bytes]], headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Append (key, value) records; durable when it returns. Raises Unavailable if any may be missing."""
        if not records:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        left, failed = len(records), ""

        def acknowledged(error: kafka.KafkaError | None, _: Any) -> None:
            nonlocal left, failed
            left -= 1
            failed = failed or ("" if error is None else error.str())
            if left == 0:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._resolve, done, failed)

        name = self._engine.name_of(topic)
        given: dict[str, str | bytes | None] = dict(headers or {})
        for sent, (key, value) in enumerate(records):
            try:
                self._producer.produce(name, value, key, on_delivery=acknowledged, headers=given)
            except (BufferError, kafka.KafkaException) as error:
                text = str(error) or "the send buffer is full"
                for _ in range(len(records) - sent):
                    acknowledged(kafka.KafkaError(kafka.KafkaError._QUEUE_FULL, text), None)
                break
        await done

    def _resolve(self, done: asyncio.Future[None], failed: str) -> None:
        if not done.done():
            if failed:
                done.set_exception(Unavailable(f"{self._engine.address.shown}: {failed}"))
            else:
                done.set_result(None)

    def _serve(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(0.1)

    async def stop(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._thread.join, 5)
        await asyncio.to_thread(self._producer.flush, 1)


class TopicReader:
    """Consumes a topic with the other members of its group, and commits what `handle` has returned from.

    A batch ends after `batch` records or `within_s`. A new group begins at the oldest record, or at `since_ms`.

    `handle` runs on the event loop. If it fails, it is called again with the same records: at least once, in the order
    of each partition. While one batch is handled, librdkafka holds a bounded number of further records.
    """

    def __init__(
        self,
        engine: KafkaEngine,
        topic: str,
        *,
        group: str,
        handle: Callable[[list[Record]], Awaitable[None]],
        batch: int = READ_BATCH,
        within_s: float = 0.0,
        since_ms: float | None = None,
    ) -> None:
        self._engine = engine
        self._topic = engine.name_of(topic)
        self._within_s = within_s
        self._since_ms = since_ms
        self._handle = handle
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._ended, self._renew = threading.Event(), threading.Event()
        self._settings = {
            **engine.address.client,
            "group.id": engine.name_of(group),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 1_000,
            "max.poll.interval.ms": 600_000,
            "topic.metadata.refresh.interval.ms": 5_000,
            "queued.max.messages.kbytes": 16_384,
            "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
            "error_cb": lambda error: None,
        }
        self._thread = threading.Thread(target=self._run, name=f"kafka {topic}", daemon=True)
        self._handling: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._thread.start()

    def begin_again(self) -> None:
        """Connect again: offsets of another cluster mean nothing here."""
        self._renew.set()

    async def stop(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._thread.join, 10)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._renew.clear()
            consumer = kafka.Consumer(self._settings)
            try:
                consumer.subscribe([self._topic], on_assign=self._assigned)
                while not (self._ended.is_set() or self._renew.is_set()):
                    self._step(consumer)
            except (kafka.KafkaException, RuntimeError) as error:
                log.warning("engine.read_failed", topic=self._topic, error=str(error))
                self._ended.wait(RETRY_S)
            finally:
                consumer.close()

    def _step(self, consumer: Any) -> None:
        first = consumer.poll(0.2)
        if first is None:
            return
        found = [first, *self._more(consumer)]
        messages = [message for message in found if message.error() is None]
        if not messages:
            self._ended.wait(0.2)  # such as: the topic does not exist yet
            return
        if not self._handled([_record(message) for message in messages]):
            return
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            ends[message.topic(), message.partition()] = message.offset() + 1
        offsets = [kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except kafka.KafkaException as error:  # another member has the partition now, and reads these records again
            log.info("engine.commit_failed", topic=self._topic, error=error.args[0].str())

    def _more(self, consumer: Any) -> list[Any]:
        """The records of the same batch."""
        found: list[Any] = consumer.consume(self._batch - 1, timeout=0) if self._batch > 1 else []
        until = time.monotonic() + self._within_s
        while len(found) < self._batch - 1 and (left := until - time.monotonic()) > 0 and not self._ended.is_set():
            found += consumer.consume(self._batch - 1 - len(found), timeout=min(left, 0.2))
        return found

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Begin a new group at `since_ms`, and record that, so that older records do not count as lag."""
        if self._since_ms is None or not partitions:
            return
        new = [p for p in consumer.committed(partitions, timeout=ANSWER_S) if p.offset < 0]
        if not new:
            return
        asked = [kafka.TopicPartition(p.topic, p.partition, int(self._since_ms)) for p in new]
        found = consumer.offsets_for_times(asked, timeout=ANSWER_S)
        for place in found:
            if place.offset < 0:  # no record is that new
                place.offset = consumer.get_watermark_offsets(place, timeout=ANSWER_S)[1]
        consumer.commit(offsets=found, asynchronous=False)
        begun = {p.partition: p for p in found}
        consumer.assign([begun.get(p.partition, p) for p in partitions])

    def _handled(self, records: list[Record]) -> bool:
        """Have the records handled, again and again if need be; False if the reader stops meanwhile."""
        while not (self._ended.is_set() or self._renew.is_set()):
            handling = asyncio.run_coroutine_threadsafe(self._call(records), self._loop)
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    if handling.result(0.2):
                        return True
                    self._ended.wait(RETRY_S)
                    break
        return False

    async def _call(self, records: list[Record]) -> bool:
        try:
            await self._handle(records)
        except Exception as error:
            log.warning("engine.handle_failed", topic=self._topic, records=len(records), error=repr(error))
            return False
        return True


def _record(message: Any) -> Record:
    headers = {name: value or b"" for name, value in message.headers() or ()}
    return Record(
        message.partition(),
        message.offset(),
        message.key() or b"",
        message.value() or b"",
        headers,
        message.topic(),
        float(message.timestamp()[1]),
    )

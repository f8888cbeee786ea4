"""Triggers on topics of a real Kafka: each message starts one execution, whatever happens to broker or scheduler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import admin

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.domain.topic import TopicSource, matches, read_clusters, read_rules
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.engine_servers import KafkaServer
from tests.support.fleet import ROUNDS
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

WITHIN_S = 45
_NEW_TOPIC: Any = admin.NewTopic  # type: ignore[attr-defined]


class Topic:
    """A topic as another program writes it."""

    def __init__(self, server: KafkaServer, name: str) -> None:
        self.name = name
        self._settings: Any = {"bootstrap.servers": server.url.removeprefix("kafka://"), "log_level": 0}

    def create(self, partitions: int = 2) -> None:
        client = admin.AdminClient(self._settings)
        client.create_topics([_NEW_TOPIC(self.name, partitions, 1)])[self.name].result(WITHIN_S)

    def delete(self) -> None:
        admin.AdminClient(self._settings).delete_topics([self.name])[self.name].result(WITHIN_S)

    def send(self, values: Sequence[Any], *, partition: int = -1) -> None:
        producer = confluent_kafka.Producer({**self._settings, "message.max.bytes": 2_000_000})
        for n, value in enumerate(values):
            content = value if isinstance(value, bytes) else msgspec.json.encode(value)
            headers: Any = {"source": "shop"}
            where: Any = {} if partition < 0 else {"partition": partition}
            producer.produce(self.name, content, str(n).encode(), headers=headers, **where)
        assert producer.flush(WITHIN_S) == 0


class Triggered:
    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        self.cluster, self.topic = cluster, topic

    async def add(self, **more: Any) -> wire.Trigger:
        source = {"kind": "topic", "cluster": "main", "topic": self.topic.name, "start": "earliest"}
        source |= more.pop("source", {})
        trigger = {"name": "orders", "job": "ship", "source": source, "params": {"order": "{{body.id}}"}, **more}
        async with self.cluster.client() as client:
            return await client.add_trigger(msgspec.convert(trigger, wire.NewTrigger))

    async def trigger(self) -> wire.Trigger:
        async with self.cluster.client() as client:
            return await client.get_trigger("orders")

    async def orders(self) -> Counter[Any]:
        async with self.cluster.server.database.connection() as connection:
            rows = await connection.fetch("SELECT params FROM executions UNION ALL SELECT params FROM history")
        return Counter(str(row["params"]["order"]) for row in rows)

    async def batches(self) -> list[list[int]]:
        """The orders of each execution that a batch has started."""
        async with self.cluster.server.database.connection() as connection:
            rows = await connection.fetch("SELECT params FROM executions UNION ALL SELECT params FROM history")
        return [[message["body"]["id"] for message in row["params"]["orders"]] for row in rows]

    async def started(self, *orders: Any) -> None:
        """Wait until each order has started an execution; no other, and none twice."""
        wanted = Counter(map(str, orders))

        async def done() -> bool:
            return await self.orders() == wanted

        try:
            await until_async("every message to start an execution", done, within_s=WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.orders()}, {await self.trigger()}") from None

    async def deliveries(self, outcome: str) -> list[wire.TriggerDelivery]:
        async with self.cluster.client() as client:
            return (await client.trigger_deliveries("orders", outcome=outcome)).items

    async def until(self, what: str, fits: Any) -> wire.Trigger:
        async def done() -> bool:
            return bool(fits(await self.trigger()))

        await until_async(what, done, within_s=WITHIN_S)
        return await self.trigger()


@asynccontextmanager
async def triggering(kafka: KafkaServer, dsn: str, *, topic: Topic | None = None, **config: Any) -> AsyncIterator[Any]:
    if topic is None:
        topic = Topic(kafka, f"orders.{uuid4().hex[:8]}")
        topic.create()
    rules = {"kafka_triggers": (f"main={kafka.url}",), "trigger_topics": ("main/orders.*",)}
    async with started(dsn, **(rules | config)) as cluster, cluster.client() as client:
        if not (await client.jobs()).items:
            await client.create_job({"name": "ship", "task": {"kind": "noop"}})
        yield Triggered(cluster, topic)


@pytest.fixture
async def triggered(kafka: KafkaServer, fresh: Database) -> AsyncIterator[Triggered]:
    async with triggering(kafka, fresh.dsn) as found:
        yield found


async def test_each_message_starts_one_execution(triggered: Triggered) -> None:
    triggered.topic.send([{"id": f"a{n}"} for n in range(10)])
    await triggered.add()
    await triggered.started(*(f"a{n}" for n in range(10)))
    found = await triggered.until("no message to wait", lambda t: t.lag == 0 and t.last_error is None)
    assert found.state == "active"
    first = (await triggered.deliveries("started"))[0]
    assert first.event is not None and first.event.startswith(f"{triggered.topic.name}/")


async def test_only_messages_after_the_trigger_count_unless_it_says_earliest(triggered: Triggered) -> None:
    triggered.topic.send([{"id": "before"}] * 3)
    await triggered.add(source={"start": "latest"})
    triggered.topic.send([{"id": "after"}])
    await triggered.started("after")


async def test_conditions_and_values_of_a_message(triggered: Triggered) -> None:
    await triggered.add(
        when='body.total > 10 && message.headers.source == "shop" && message.offset >= 0',
        params={"order": "{{message.key}}-{{body.id}}"},
        expressions={"sum": "body.total * 2"},
    )
    triggered.topic.send([{"id": "small", "total": 3}, {"id": "large", "total": 30}])
    await triggered.started("1-large")
    (filtered,) = await triggered.deliveries("filtered")
    assert "condition is false" in (filtered.reason or "")


async def test_poison_messages_are_recorded_and_block_nothing(triggered: Triggered) -> None:
    poison = [
        b"not json",
        b"\xff\xfe",
        b"[" * 5000,
        b'"' + b"x" * 300_000 + b'"',
        b'{"id": "a\\u0000b"}',
        b"",
        {"x": 1},
    ]
    triggered.topic.send([*poison, {"id": "good"}], partition=0)
    await triggered.add()
    await triggered.started("good")
    refused = await triggered.deliveries("refused")
    assert len(refused) == len(poison), [(d.event, d.reason) for d in refused]
    assert all(d.reason for d in refused)


async def test_a_batch_starts_one_execution(triggered: Triggered) -> None:
    triggered.topic.send([{"id": n} for n in range(25)], partition=0)
    await triggered.add(source={"batch": 10, "within": "1s"}, params={"orders": "{{messages}}"})

    async def all_there() -> bool:
        return sum(map(len, await triggered.batches())) >= 25

    await until_async("every message to be in a batch", all_there, within_s=WITHIN_S)
    found = await triggered.batches()
    assert sorted(order for batch in found for order in batch) == list(range(25))
    assert max(map(len, found)) <= 10 and len(found) < 10


@pytest.mark.parametrize("batch", [1, 3])
async def test_a_crash_before_the_offset_is_committed_starts_nothing_twice(
    triggered: Triggered, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Every batch of records is handled twice, and its boundaries move: the broker's offsets do not count."""
    from mainspring.backends import kafka_client

    handled, taken = kafka_client.TopicReader._handled, []

    def twice(reader: Any, records: list[Any]) -> bool:
        taken.append(len(records))
        done = handled(reader, records) and handled(reader, records[: len(records) // 2] or records)
        return done and handled(reader, records)

    monkeypatch.setattr(kafka_client.TopicReader, "_handled", twice)
    triggered.topic.send([{"id": n} for n in range(20)])
    await triggered.add(source={"batch": batch, "within": "500ms"}, params={"orders": "{{messages}}"})
    await triggered.until("no message to wait", lambda t: t.lag == 0)
    assert sorted(order for batch in await triggered.batches() for order in batch) == list(range(20)) and taken


@pytest.mark.parametrize("how", ["freeze"] if ROUNDS == 1 else ["kill", "freeze"])
async def test_each_message_starts_one_execution_when_the_broker_fails(
    kafka: KafkaServer, triggered: Triggered, how: str
) -> None:
    await triggered.add()
    triggered.topic.send([{"id": "a"}])
    await triggered.started("a")
    kafka.freeze() if how == "freeze" else kafka.kill()
    try:
        shown = "--kafka-triggers main kafka://"
        found = await triggered.until("the loss to be shown", lambda t: shown in (t.last_error or ""))
        assert found.state == "failing"
        if how == "kill":
            await kafka.start()
    finally:
        kafka.thaw() if how == "freeze" else None
    triggered.topic.send([{"id": "b"}])
    await triggered.started("a", "b")
    await triggered.until("the trigger to recover", lambda t: t.state == "active")


async def test_messages_of_a_topic_that_was_created_again_count(kafka: KafkaServer, triggered: Triggered) -> None:
    await triggered.add()
    triggered.topic.send([{"id": "a"}], partition=0)
    await triggered.started("a")
    await kafka.restart_empty()
    triggered.topic.create()
    triggered.topic.send([{"id": "again"}], partition=0)
    await triggered.started("a", "again")


async def test_another_process_continues_where_the_first_ended(kafka: KafkaServer, fresh: Database) -> None:
    async with triggering(kafka, fresh.dsn) as first:
        await first.add()
        first.topic.send([{"id": "a"}])
        await first.started("a")
    first.topic.send([{"id": "b"}])
    async with triggering(kafka, fresh.dsn, topic=first.topic) as second:
        await second.started("a", "b")


async def test_two_processes_share_the_partitions(kafka: KafkaServer, fresh: Database) -> None:
    async with triggering(kafka, fresh.dsn) as first, triggering(kafka, fresh.dsn, topic=first.topic):
        await first.add()
        for batch in range(4):
            first.topic.send([{"id": f"{batch}-{n}"} for n in range(10)])
        await first.started(*(f"{batch}-{n}" for batch in range(4) for n in range(10)))


async def test_messages_wait_while_the_job_is_paused_and_count_for_scaling(triggered: Triggered) -> None:
    await triggered.add()
    async with triggered.cluster.client() as client:
        await client.pause_job("ship", reason="stocktaking")
        triggered.topic.send([{"id": n} for n in range(5)], partition=0)
        found = await triggered.until("the lag to be shown", lambda t: t.lag == 5 and t.last_error)
        assert "stocktaking" in (found.last_error or "")
        load = (await client.scaling()).queues["short"]
        assert load.topic_lag == 5 and load.wanted_slots >= 5
        await client.resume_job("ship")
    await triggered.started(*range(5))


async def test_a_paused_trigger_continues_where_it_was(triggered: Triggered) -> None:
    await triggered.add()
    triggered.topic.send([{"id": "a"}])
    await triggered.started("a")
    async with triggered.cluster.client() as client:
        await client.pause_trigger("orders", reason="")
        triggered.topic.send([{"id": "b"}])
        await asyncio.to_thread(triggered.topic.send, [{"id": "c"}])
        assert await triggered.orders() == {"a": 1}
        await client.resume_trigger("orders")
    await triggered.started("a", "b", "c")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ((), "this tenant may not read main/orders."),
        (("other=main/*",), "this tenant may not read main/orders."),
        (("main/orders.",), "this tenant may not read main/orders."),
        (("elsewhere/*",), "this tenant may not read main/orders."),
    ],
)
async def test_topics_are_denied_unless_the_operator_allows_them(
    kafka: KafkaServer, fresh: Database, rules: tuple[str, ...], problem: str
) -> None:
    async with triggering(kafka, fresh.dsn, trigger_topics=rules) as found:
        found.topic.send([{"id": "a"}])
        await found.add()
        shown = await found.until("the refusal to be shown", lambda t: problem in (t.last_error or ""))
        assert shown.state == "failing" and not await found.orders()


async def test_without_a_cluster_the_trigger_says_so(fresh: Database) -> None:
    async with started(fresh.dsn) as cluster, cluster.client() as client:
        await client.create_job({"name": "ship", "task": {"kind": "noop"}})
        trigger = {"name": "orders", "job": "ship", "source": {"kind": "topic", "cluster": "main", "topic": "t"}}
        found = await client.add_trigger(msgspec.convert(trigger, wire.NewTrigger))
        assert "--kafka-triggers" in (found.last_error or "")


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("*", "anything", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "ac", False),
        ("ab*ba", "aba", False),
        ("*.eu", "orders.eu", True),
    ],
)
def test_patterns(pattern: str, topic: str, fits: bool) -> None:
    assert matches(pattern, topic) is fits
    (rule,) = read_rules([f"main/{pattern}"])
    source = TopicSource(cluster="main", topic=topic)
    assert rule.allows(source, tenant="default", is_first=True) is fits
    assert not rule.allows(source, tenant="second", is_first=False)
    (every,) = read_rules([f"*=main/{pattern}"])
    assert every.allows(source, tenant="second", is_first=False) is fits


@pytest.mark.parametrize("text", ["orders", "Main/orders", "a=b=c/d", "main/", "main/a b"])
def test_invalid_rules_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"is not \[TENANT=\]CLUSTER/PATTERN"):
        read_rules([text])


def test_invalid_clusters_are_refused() -> None:
    for given in (["kafka://host"], ["Main=kafka://host"], ["a=kafka://h", "a=kafka://i"]):
        with pytest.raises(Invalid, match="--kafka-triggers"):
            read_clusters(given)

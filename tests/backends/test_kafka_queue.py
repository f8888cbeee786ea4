"""The queue on a real Kafka: each execution starts once, with the engine, without it, and while it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import msgspec
import pytest

from mainspring import wire
from mainspring.backends.kafka_engines import open_queue
from mainspring.backends.kafka_queue import KafkaQueue, lane_of
from mainspring.codec import encode
from mainspring.dispatch.ready_heaps import ReadyHeaps
from mainspring.domain.errors import Invalid, Unavailable
from mainspring.store.db import Database
from mainspring.telemetry import metrics
from mainspring.wire.ready_execution import ReadyExecution
from tests.conftest import Cluster, started
from tests.support.engine_servers import KafkaServer
from tests.support.fleet import ROUNDS
from tests.support.processes import until
from tests.support.remote_worker import Remote, remote
from tests.support.topic_reader import Tail

pytestmark = pytest.mark.anyio

WITHIN_S = 45


def counted(outcome: str) -> float:
    return float(metrics.QUEUE_RECORDS.labels(outcome)._value.get())


class Queued:
    def __init__(self, cluster: Cluster, worker: Remote, queue: KafkaQueue, prefix: str) -> None:
        self.cluster, self.worker, self.queue, self.prefix = cluster, worker, queue, prefix

    async def submit(self, count: int, **more: Any) -> set[UUID]:
        """Submit while no worker waits, so that no execution is handed over directly."""
        async with self.cluster.client() as client:
            answer = await client.submit([wire.BatchItem(job="ready", **more) for _ in range(count)])
        return {one.execution_id for one in answer.items if one.execution_id is not None}

    async def run(self, wanted: set[UUID]) -> None:
        """Take executions until all have run, each once, at its first attempt."""
        seen: list[UUID] = []
        with anyio.move_on_after(WITHIN_S):
            while len(seen) < len(wanted):
                for given in (await self.worker.poll(10)).executions:
                    assert given.attempt == 1
                    seen.append(given.execution_id)
                    await self.worker.tell(given)
        assert sorted(seen) == sorted(wanted)

    async def records(self, wanted: set[UUID]) -> list[ReadyExecution]:
        """The records of executions, as the leader publishes them but for their rank: they are claimed first."""
        async with self.cluster.server.database.connection() as connection:
            rows = await connection.fetch(
                "SELECT execution_id, job_id, line_id FROM executions WHERE execution_id = ANY ($1::uuid[])", wanted
            )
        return [
            ReadyExecution(
                version=1, execution_id=row["execution_id"], job_id=row["job_id"], tenant="default", task={},
                params=None, estimated_duration=None, shard_id=0, scheduled_time=datetime(2026, 1, 1, tzinfo=UTC),
                priority=5, line=row["line_id"], rank=0,
            )
            for row in rows
        ]  # fmt: skip

    async def publish_again(self, records: list[ReadyExecution]) -> None:
        """Publish records, and wait until the dispatcher has them, which has forgotten what was named before."""
        ready = self.cluster.context.dispatcher._claimer.ready
        ready.clear()
        await self.queue.publish([(5, one.job_id, encode(one)) for one in records])
        await until("the records to arrive", lambda: len(ready) >= len(records), within_s=WITHIN_S)


@asynccontextmanager
async def queueing(kafka: KafkaServer, dsn: str) -> AsyncIterator[Queued]:
    prefix = f"q{uuid4().hex[:12]}"
    config = {"queue": f"{kafka.url}/{prefix}?partitions=3", "session_lease_s": WITHIN_S * 4.0}
    async with started(dsn, **config) as cluster, cluster.client() as client, remote(cluster) as worker:
        await client.create_job({"name": "ready", "task": {"kind": "noop"}})
        queue = cluster.server._queue
        assert queue is not None
        found = Queued(cluster, worker, queue, prefix)
        # The dispatcher learns of the line by its first execution.
        await found.run(await found.submit(1))
        yield found


@pytest.fixture
async def queued(kafka: KafkaServer, fresh: Database) -> AsyncIterator[Queued]:
    async with queueing(kafka, fresh.dsn) as found:
        yield found


async def test_executions_reach_their_worker_through_the_queue(queued: Queued) -> None:
    before = counted("claimed")
    wanted = await queued.submit(40)
    await until(
        "the queue to name them", lambda: len(queued.cluster.context.dispatcher._claimer.ready) >= 40, within_s=60
    )
    await queued.run(wanted)
    assert counted("claimed") - before == 40


@pytest.mark.requirement(46)
async def test_a_record_is_version_1_of_the_contract(kafka: KafkaServer, queued: Queued) -> None:
    (execution,) = await queued.submit(1)
    with Tail(kafka.url.replace("kafka://", ""), f"{queued.prefix}-jobs.normal") as tail:

        def found() -> list[dict[str, Any]]:
            return [event for event in tail.events if event["execution_id"] == str(execution)]

        await until("the record to be there", lambda: bool(found()), within_s=WITHIN_S)
        record = found()[0]
    contract = ["execution_id", "job_id", "task", "params", "estimated_duration", "shard_id", "scheduled_time"]
    assert list(record) == ["version", *contract[:2], "tenant", *contract[2:], "priority", "line", "rank"]
    assert record["version"] == 1 and record["task"] == {"kind": "noop"} and record["tenant"] == "default"
    assert tail.keys == {record["job_id"]}


async def test_repeated_forged_and_unreadable_records_start_nothing(queued: Queued) -> None:
    """What the records name is asked of PostgreSQL, which refuses all but the executions queued in their line."""
    ready, unreadable = queued.cluster.context.dispatcher._claimer.ready, counted("unreadable")
    async with queued.cluster.client() as client:  # an execution of another line, which this worker may not run
        await client.create_job({"name": "elsewhere", "task": {"kind": "noop"}, "labels": {"zone": "eu"}})
        other = (await client.trigger("elsewhere")).execution_id
    wanted = await queued.submit(6)
    await until("the queue to name them", lambda: len(ready) >= 7, within_s=WITHIN_S)
    good = await queued.records(wanted)
    missing = [msgspec.structs.replace(one, execution_id=uuid4()) for one in good]
    misplaced = [msgspec.structs.replace(good[0], execution_id=other)]
    await queued.publish_again([*missing, *misplaced, *good])
    await queued.queue.publish([(5, uuid4(), b"{}")])
    await until("one to be unreadable", lambda: counted("unreadable") - unreadable == 1, within_s=WITHIN_S)
    running: list[wire.Assignment] = []
    before = counted("refused")
    with anyio.fail_after(WITHIN_S):
        while counted("refused") - before + len(running) < len(missing + misplaced + good):
            running += (await queued.worker.poll(20, wait_s=0.5)).executions
    assert sorted(given.execution_id for given in running) == sorted(wanted)

    before = counted("refused")
    await queued.publish_again(good)  # they run now
    with anyio.fail_after(WITHIN_S):
        while counted("refused") - before < len(good):
            assert (await queued.worker.poll(20, wait_s=0.5)).executions == []
    for given in running:
        assert given.attempt == 1
        await queued.worker.tell(given)
    async with queued.cluster.client() as client:
        assert (await client.execution(other)).state == "queued"


async def test_what_the_queue_loses_the_slow_poll_finds(queued: Queued) -> None:
    ready = queued.cluster.context.dispatcher._claimer.ready
    wanted = await queued.submit(5)
    await until("the queue to name them", lambda: len(ready) >= 5, within_s=WITHIN_S)
    ready.clear()
    await queued.run(wanted)


@pytest.mark.parametrize("how", ["kill", "freeze"] if ROUNDS == 1 else ["kill", "freeze", "empty"])
async def test_each_execution_starts_once_when_the_broker_fails(kafka: KafkaServer, queued: Queued, how: str) -> None:
    before = await queued.submit(5)
    kafka.freeze() if how == "freeze" else kafka.kill()
    try:
        during = await queued.submit(5)
        await queued.run(before | during)
        await until("the loss to be noticed", lambda: not queued.queue.available, within_s=WITHIN_S)
        await queued.run(await queued.submit(5))
        if how == "kill":
            await kafka.start()
        elif how == "empty":
            await kafka.restart_empty()
    finally:
        kafka.thaw() if how == "freeze" else None
    await until("the queue to be back", lambda: queued.queue.available, within_s=WITHIN_S)
    await queued.run(await queued.submit(10))


async def test_without_a_broker_executions_are_claimed_as_ever(fresh: Database) -> None:
    absent = KafkaServer(Path("absent"))
    async with queueing(absent, fresh.dsn) as found:
        assert not found.queue.available
        with pytest.raises(Unavailable, match=r"--queue kafka://127\.0\.0\.1:\d+"):
            await found.queue.publish([(5, uuid4(), b"{}")])
        await found.run(await found.submit(5))


def test_priorities_have_their_lanes() -> None:
    assert [lane_of(n) for n in (0, 3, 4, 6, 7, 10)] == [
        *["jobs.low"] * 2, *["jobs.normal"] * 2, *["jobs.high"] * 2
    ]  # fmt: skip


def test_heaps_are_bounded_and_in_order() -> None:
    heaps, ids = ReadyHeaps(3), [uuid4() for _ in range(4)]
    assert [heaps.push(1, -n, one) for n, one in enumerate(ids)] == [True, True, True, False]
    assert not heaps.push(1, 0, ids[0])
    assert heaps.take(1, 2) == [ids[2], ids[1]] and heaps.has(1) and len(heaps) == 1
    assert heaps.take(1, 5) == [ids[0]] and not heaps.has(1) and heaps.take(2, 1) == []


def test_invalid_urls_are_refused() -> None:
    with pytest.raises(Invalid, match="--queue redis://host: unknown engine"):
        open_queue("redis://host", prefix="test")

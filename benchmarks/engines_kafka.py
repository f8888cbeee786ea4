"""Settling and dispatching through Kafka, beside PostgreSQL alone, in the same process and on the same database.

Settling: from the first record read to the last commit; the end is noticed up to 0.2 s late, so use many results.
Dispatching: from a queue of `count` executions to the last that is running, in claims of a thousand slots, by one
dispatcher. Through Kafka that includes reading the queue once, publishing it, and consuming it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import Machine, machine
from settle import BATCH, RUNNING, TENANT, Silence, session
from settle import measure as settle_directly

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.backends.kafka_engines import open_queue, open_results
from mainspring.clock import SystemClock
from mainspring.codec import encode
from mainspring.dispatch.claim import Claimer, ClaimGroup
from mainspring.dispatch.lines import KnownLines, Line, WorkerProfile
from mainspring.dispatch.match import FreeCapacity
from mainspring.dispatch.queue_feed import QueueFeed
from mainspring.dispatch.ready_heaps import ReadyHeaps
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.ports import SignedRecord
from mainspring.results.settle import Settler
from mainspring.results.stream import ResultIntake
from mainspring.store import lines, sessions
from mainspring.store.definitions import Definitions
from mainspring.store.sessions import SessionProof
from mainspring.wire.ready_execution import ReadyExecution, ReadyRef
from mainspring.wire.result_stream import record_of, sign
from tests.support.engine_servers import KafkaServer

N = int(os.environ.get("BENCH_N", "50000"))
PARTITIONS = 12
SLOTS = 1_000
QUEUED = """
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, attempt, state, trigger, queue, rank,
                        fire_at, due_at, queued_at, line_id)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM now()) * 1000)::bigint + n), 12, '0'), job_id, n::text),
       job_id, 1, 1, shard, 5, 0, 'queued', 'manual', queue, n, db_now(), db_now(), db_now(), line_id
FROM jobs, generate_series(1, $2) AS n WHERE job_id = $1
"""


async def settle_rate(count: int = N) -> dict[str, Any]:
    """Return results per second from the first record read to the last commit: through Kafka, and directly."""
    with tempfile.TemporaryDirectory(prefix="mainspring-kafka-") as folder:
        server = KafkaServer(Path(folder) / "broker")
        await server.start()
        try:
            async with machine() as target:
                await settle_directly(target, "succeeded", {}, 2_000, 3)
                direct, _ = await settle_directly(target, "succeeded", {}, count, 3)
                streamed = await _settle_streamed(target, server.url, count)
                claimed = await _dispatch_directly(target, count)
                dispatched = await _dispatch_queued(target, server.url, count)
        finally:
            server.kill()
    return {
        "kafka_settle_per_s": round(streamed),
        "direct_settle_per_s": round(direct),
        "kafka_dispatch_per_s": round(dispatched),
        "direct_dispatch_per_s": round(claimed),
        "results": count,
    }


async def _queued(target: Machine, count: int) -> tuple[int, UUID, WorkerProfile]:
    """A line with queued executions, and a session that may take them."""
    spec = JobSpec(name=f"j-{uuid4()}", task=NoopTask())
    job_id = await jobs.create(target.database, spec, tenant=TENANT, by="bench")
    session_id = await session(target)
    async with target.database.connection() as connection:
        await connection.execute(QUEUED, job_id, count)
        await connection.execute("VACUUM ANALYZE executions")
        line_id = await connection.fetchval("SELECT line_id FROM jobs WHERE job_id = $1", job_id)
    return line_id, session_id, WorkerProfile(None, ("short",), frozenset({"noop"}), ())


async def _claimer(target: Machine, line_id: int) -> tuple[Claimer, KnownLines, Line]:
    settings = DispatchSettings()
    await settings.load(target.database)
    known = KnownLines(settings.demand)
    async with target.database.connection() as connection:
        known.add([line_id], await lines.lines_by_id(connection, line_ids=[line_id]))
    reservations = ReservationCache(Definitions(target.database), settings)
    line = known.get(line_id)
    assert line is not None
    return Claimer(target.database, known, settings, reservations, clock=SystemClock()), known, line


async def _claim(claimer: Claimer, line: Line, session_id: UUID, profile: WorkerProfile) -> int:
    line.batch = SLOTS
    group = ClaimGroup({line: (profile,)}, {profile})
    return len(await claimer.claim(group, lambda _: [FreeCapacity(session_id, SLOTS, SLOTS)]))


async def _dispatch_directly(target: Machine, count: int) -> float:
    line_id, session_id, profile = await _queued(target, count)
    claimer, _, line = await _claimer(target, line_id)
    began, started = time.perf_counter(), 0
    while started < count:
        started += await _claim(claimer, line, session_id, profile)
    return count / (time.perf_counter() - began)


async def _dispatch_queued(target: Machine, url: str, count: int) -> float:
    line_id, session_id, profile = await _queued(target, count)
    claimer, known, line = await _claimer(target, line_id)
    claimer.ready = ReadyHeaps(count)
    arrived = asyncio.Event()

    def deliver(records: Sequence[ReadyRef]) -> None:
        for record in records:
            claimer.ready.push(record.line, record.rank, record.execution_id)
        known.mark_named(line)
        arrived.set()

    queue = open_queue(f"{url}/bench-{uuid4().hex[:8]}?partitions={PARTITIONS}", prefix="bench")
    assert queue is not None
    queue.deliver_to(deliver)
    await queue.start()
    warm = ReadyExecution(
        version=1, execution_id=uuid4(), job_id=uuid4(), tenant="default", task={}, params=None,
        estimated_duration=None, shard_id=0, scheduled_time=datetime.now(UTC), priority=5, line=0, rank=0,
    )  # fmt: skip
    await queue.publish([(5, warm.job_id, encode(warm))])
    await arrived.wait()  # the group has formed
    feed = QueueFeed(target.database, Silence(), queue, leads=lambda: True)
    began, started = time.perf_counter(), 0
    feed._on_queued(f"{line_id} {-(2**63)}")
    feeding = asyncio.create_task(_feed(feed))
    while started < count:
        arrived.clear()
        if claimer.ready.has(line_id):
            started += await _claim(claimer, line, session_id, profile)
        else:
            await arrived.wait()
    took = time.perf_counter() - began
    await feeding
    await queue.stop()
    return count / took


async def _feed(feed: QueueFeed) -> None:
    while feed._hinted:
        await feed.feed()


async def _settle_streamed(target: Machine, url: str, count: int) -> float:
    prefix = f"bench-{uuid4().hex[:8]}"
    session_id, digest, given = await _running(target, count)
    writer = open_results(f"{url}/{prefix}?partitions={PARTITIONS}", prefix=prefix)
    assert writer is not None
    await writer.start()
    for at in range(0, count, BATCH):
        results = [
            wire.Result(execution_id=execution, attempt=1, outcome="succeeded", duration_ms=5)
            for execution in given[at : at + BATCH]
        ]
        value = record_of(session_id, results, [])
        await writer.append(SignedRecord(session_id, value, sign(value, digest)))
    await writer.stop()
    reader = open_results(f"{url}/{prefix}?partitions={PARTITIONS}", prefix=prefix)
    assert reader is not None
    settler = Settler(target.database, Definitions(target.database), Announcer(Silence()))
    intake = ResultIntake(target.database, settler, reader)
    began: list[float] = []

    async def settle(records: Sequence[SignedRecord]) -> None:
        began.append(time.perf_counter())
        await intake._settle_records(records)

    reader.settle_with(settle)
    await reader.start()
    await reader.drained()
    took = time.perf_counter() - began[0]  # without connecting and joining the group
    await reader.stop()
    await intake.stop()
    async with target.database.connection() as connection:
        left = await connection.fetchval("SELECT count(*) FROM executions WHERE session_id = $1", session_id)
    assert left == 0, f"{left} results were not settled"
    return count / took


async def _running(target: Machine, count: int) -> tuple[UUID, bytes, list[UUID]]:
    """Running executions of a session, and the digest of its key."""
    spec = JobSpec(name=f"j-{uuid4()}", task=NoopTask())
    job_id = await jobs.create(target.database, spec, tenant=TENANT, by="bench")
    session_id, digest = uuid4(), sha256(secrets.token_bytes(32)).digest()
    register = wire.Register(name="bench", host="h", version="1", slots=1000, queues=["short"], kinds=["noop"])
    async with target.database.connection() as connection:
        await sessions.insert_session(
            connection, tenant=TENANT, session_id=session_id, worker_id=uuid4(), lease_s=86_400, register=register,
            proof=SessionProof(None, digest),
        )  # fmt: skip
        rows = await connection.fetch(RUNNING, job_id, session_id, count)
        await connection.execute("VACUUM ANALYZE executions")
    return session_id, digest, [r["execution_id"] for r in rows]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(settle_rate())))

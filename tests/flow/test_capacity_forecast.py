"""The capacity simulation says how long executions wait; then they run on such a worker, and wait that long."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.statistics import bucket_of, percentile
from mainspring.store import rollups
from mainspring.store.db import Database
from tests.conftest import started

pytestmark = pytest.mark.anyio
SLOTS = 2
TAKES_S = 0.8
WAVES = 4
TOLERANCE = 0.25
TOLERANCE_MS = 350
"""A quarter, and what starting a program takes on a busy machine."""


async def test_the_simulated_waits_are_those_that_happen(fresh: Database) -> None:
    async with started(fresh.dsn) as cluster, cluster.client() as client:
        task = {"kind": "shell", "argv": ["sleep", str(TAKES_S)]}
        for n in range(6):
            await client.create_job({"name": f"wave-{n}", "task": task, "schedule": {"every": "4s", "aligned": True}})
        async with cluster.worker(slots=SLOTS), asyncio.timeout(60):
            await _ended(client, 6)  # the first programs of a worker start more slowly
            await _roll_up(fresh)
            async with fresh.connection() as connection:
                await connection.execute("TRUNCATE job_rollups, queue_rollups")
            ended = (await _ended(client, 6 * (1 + WAVES)))[6:]
        waits = [(e.started_at - e.due_at) / timedelta(milliseconds=1) for e in ended if e.started_at is not None]
        await _roll_up(fresh)
        found = (await client.forecast(days=1, workers=1, slots=SLOTS)).capacity
        assert found is not None and found.executions == 6 * 24 * 3600 / 4
        (queue,) = found.queues
        counts: dict[int, int] = {}
        for wait in waits:
            counts[bucket_of(wait)] = counts.get(bucket_of(wait), 0) + 1
        for name, expected, seen in (
            ("p50", queue.p50_ms, percentile(counts, 0.5) or 0.0),
            ("p95", queue.p95_ms, percentile(counts, 0.95) or 0.0),
            ("max", queue.max_ms, max(waits)),
        ):
            assert expected == pytest.approx(seen, rel=TOLERANCE, abs=TOLERANCE_MS), name
        assert queue.max_ms > 1.5 * 1000 * TAKES_S, "the third pair waits for two others"
        assert found.busy == pytest.approx(6 * TAKES_S / (4 * SLOTS), rel=TOLERANCE)
        twice = (await client.forecast(days=1, workers=3, slots=SLOTS)).capacity
        assert twice is not None and twice.queues[0].max_ms == 0 and not twice.minutes


async def _ended(client: AsyncClient, count: int) -> list[wire.Execution]:
    """The first executions, once so many have succeeded."""
    while True:
        found = sorted(
            (await client.executions(limit=200)).items, key=lambda e: (e.fire_at, e.finished_at or e.fire_at)
        )
        if sum(e.state == "succeeded" for e in found[:count]) == count:
            return found[:count]
        live = [e for e in found if e.state != "succeeded"]
        if live:
            await client.execution(live[-1].execution_id, wait_s=5)


async def _roll_up(database: Database) -> None:
    """Add up what has ended, without the delay of the duty."""
    async with database.transaction() as connection:
        progress = await rollups.lock_rollups(connection, grace_s=0)
        await rollups.roll_up(connection, since=progress.rolled_up_to, until=progress.ready_to)

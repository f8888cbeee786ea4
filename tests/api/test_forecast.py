"""The forecast: what a tenant's own schedules will fire, the slots they need, and how to spread crowded minutes."""

from __future__ import annotations

import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.store.db import Database
from tests.conftest import Cluster, started

pytestmark = pytest.mark.anyio

ENDED = """
INSERT INTO job_rollups (job_id, at, queue, tenant_id, succeeded, failed, cancelled, skipped, duration_ms, wait_ms,
                         buckets, counts)
SELECT $1, date_bin('1 hour', db_now(), '2000-01-01Z'), $2, 1, 9, 1, 0, 0, 10 * 1800000, 0,
       ARRAY[duration_bucket(1800000)], ARRAY[9]"""
ENDED_IN_QUEUE = """
INSERT INTO queue_rollups (tenant_id, at, queue, succeeded, failed, cancelled, skipped, duration_ms, wait_ms, buckets,
                           counts)
SELECT 1, date_bin('1 hour', db_now(), '2000-01-01Z'), $1, 9, 1, 0, 0, 10 * 1800000, 0,
       ARRAY[duration_bucket(1800000)], ARRAY[9]"""


async def test_fires_slots_and_crowded_minutes_of_the_coming_days(fresh: Database) -> None:
    async with started(fresh.dsn) as cluster, cluster.client() as client:
        for n in range(70):
            schedule = {"cron": "20 3 * * *", "timezone": "UTC"}
            await client.create_job({"name": f"night-{n}", "task": {"kind": "noop"}, "schedule": schedule})
        hourly = {"name": "hourly", "task": {"kind": "noop"}, "queue": "slow", "schedule": {"cron": "0 * * * *"}}
        job = await client.create_job(hourly)
        paused = await client.create_job({**hourly, "name": "paused"})
        await client.pause_job(paused.name)
        async with fresh.connection() as connection:
            await connection.execute(ENDED, job.job_id, "slow")
            await connection.execute(ENDED_IN_QUEUE, "slow")
        found = await client.forecast(days=2)
        assert (found.fires, len(found.hours), found.exact) == (2 * 24 + 2 * 70, 48, True)
        assert {hour.at.hour: hour.fires for hour in found.hours} == {n: 71 if n == 3 else 1 for n in range(24)}
        night, slow = sorted(found.queues, key=lambda queue: queue.name == "slow")
        assert (night.fires, night.slots, night.busiest_at and night.busiest_at.hour) == (140, None, 3)
        assert slow.fires == 48 and slow.slots == pytest.approx(0.5), "half an hour in each hour"
        assert slow.p95_ms == pytest.approx(1_800_000, rel=0.05)
        assert found.notes == [f"no durations are known, so slots count as 0: {night.name}"]
        assert [(found.crowded[0].due, found.crowded[0].at.minute)] == [(70, 20)]
        (spread,) = found.spread
        assert (spread.due, spread.jobs, spread.jitter, spread.shift_min) == (70, 70, "5m", None)
        assert spread.then < 30 and set(spread.examples) <= {f"night-{n}" for n in range(70)}
        assert len((await client.forecast()).hours) == 7 * 24
        for days in (0, 15):
            with pytest.raises(Invalid, match="days must be 1 to 14"):
                await client.forecast(days=days)


async def test_a_tenant_sees_its_own_load_only(cluster: Cluster, client: AsyncClient, neighbour: AsyncClient) -> None:
    hourly = {"task": {"kind": "noop"}, "schedule": {"cron": "0 * * * *"}}
    before = (await client.forecast(days=1)).fires
    await client.create_job({**hourly, "name": "ours-of-the-forecast", "queue": "forecast-ours"})
    for n in range(2):
        await neighbour.create_job({**hourly, "name": f"theirs-of-the-forecast-{n}", "queue": "forecast-theirs"})
    ours, theirs = await client.forecast(days=1), await neighbour.forecast(days=1)
    assert ours.fires == before + 24 and "forecast-theirs" not in {queue.name for queue in ours.queues}
    assert [(queue.name, queue.fires) for queue in theirs.queues] == [("forecast-theirs", 48)]
    assert {name for minute in theirs.crowded for one in minute.schedules for name in one.jobs} == {
        "theirs-of-the-forecast-0",
        "theirs-of-the-forecast-1",
    }

"""The cost report: executions, hours and costs by tenant, queue and job."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from mainspring.client import AsyncClient
from mainspring.domain.costs import read_price_windows, read_prices
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.duties.rollups import Rollups
from mainspring.intake import jobs
from mainspring.store import rollups
from mainspring.store.db import Database
from tests.conftest import Cluster, started

pytestmark = pytest.mark.anyio

INSERT = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, started_at, finished_at, duration_ms)
SELECT gen_random_uuid(), $1, $2, 1, 5, 1, CASE WHEN n <= $3 THEN 'succeeded' ELSE 'failed' END, 'fire', $4, at,
       at, at, at, $5
FROM (SELECT date_bin('1 hour', db_now(), '2000-01-01Z') - interval '30 minutes') AS due (at),
     generate_series(1, 10) AS n"""
HOUR_MS = 3_600_000


async def ran(database: Database, job: UUID, queue: str, *, tenant: int = 1, succeeded: int = 10, ms: int) -> None:
    async with database.connection() as connection:
        await connection.execute(INSERT, job, tenant, succeeded, queue, ms)


@pytest.mark.requirement(82)
async def test_costs_follow_durations_resources_and_prices(fresh: Database) -> None:
    prices = read_prices("slot=1,cpu=10,currency=EUR")
    async with started(fresh.dsn, prices=prices) as cluster, cluster.client() as client:
        big = await client.create_job(
            {"name": "big", "task": {"kind": "noop"}, "queue": "long", "resources": {"cpu": 2}}
        )
        small = await client.create_job({"name": "small", "task": {"kind": "noop"}})
        async with fresh.connection() as connection:
            other = await connection.fetchval("INSERT INTO tenants (name) VALUES ('other') RETURNING tenant_id")
            at = await connection.fetchval("SELECT date_bin('1 hour', db_now(), '2000-01-01Z') - interval '1 hour'")
            await rollups.restart_rollups(connection, at=at)
            for day in {at.date(), (at + timedelta(hours=2)).date()}:
                if await connection.fetchval("SELECT to_regclass($1)", f"history_{day:%Y%m%d}") is None:
                    await connection.execute(
                        f"CREATE TABLE history_{day:%Y%m%d} PARTITION OF history"
                        f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
                    )
        await ran(fresh, big.job_id, "long", succeeded=8, ms=HOUR_MS)
        await ran(fresh, small.job_id, "short", ms=HOUR_MS // 10)
        spec = JobSpec(name="theirs", task=NoopTask())
        theirs = await jobs.create(fresh, spec, tenant=other, by="test")
        await ran(fresh, theirs, "short", tenant=other, ms=HOUR_MS)
        await Rollups(fresh, leads=lambda: True).run_once()
        found = await client.costs(days=1)
        # Ten hours at 1 + 2 * 10, and one hour at 1.
        assert [(job.name, job.executions, job.failed) for job in found.jobs] == [("big", 10, 2), ("small", 10, 0)]
        assert [job.cost for job in found.jobs] == pytest.approx([210, 1])
        by_queue = {queue.name: queue.cost for queue in found.queues}
        assert by_queue == {"long": pytest.approx(210), "short": pytest.approx(1)}
        assert found.jobs[0].resource_hours == {"cpu": 20} == found.queues[0].resource_hours
        assert found.jobs[1].resource_hours == {}
        assert found.queues[0].p95_ms == pytest.approx(HOUR_MS, rel=0.05)
        assert found.cost == pytest.approx(211) and found.currency == "EUR"
        assert {tenant.name: tenant.cost for tenant in found.tenants} == {"default": pytest.approx(211), "other": 10.0}
        assert [job.name for job in (await client.costs(days=1, jobs=1)).jobs] == ["big"]
        for days in (0.0, 36.0, float("nan")):
            with pytest.raises(Invalid):
                await client.costs(days=days)


async def test_hours_in_a_price_window_cost_its_factor(fresh: Database) -> None:
    prices, windows = read_prices("slot=1"), read_price_windows("timezone=Europe/Berlin; 00:00-24:00=0.5")
    async with started(fresh.dsn, prices=prices, price_windows=windows) as cluster, cluster.client() as client:
        job = await client.create_job({"name": "big", "task": {"kind": "noop"}})
        async with fresh.connection() as connection:
            await connection.execute(
                "INSERT INTO job_rollups (job_id, at, queue, tenant_id, succeeded, failed, cancelled, skipped,"
                " duration_ms, wait_ms, buckets, counts) VALUES ($1, date_bin('1 hour', db_now(), '2000-01-01Z')"
                " - interval '2 hours', 'short', 1, 10, 0, 0, 0, $2, 0, '{}', '{}')",
                job.job_id,
                10 * HOUR_MS,
            )
        found = await client.costs(days=1)
    assert found.cost == pytest.approx(5) == found.jobs[0].cost and found.jobs[0].run_hours == pytest.approx(10)


async def test_a_tenant_sees_its_own_costs_only(cluster: Cluster, neighbour: AsyncClient) -> None:
    found = await neighbour.costs()
    assert not found.jobs and not found.queues and not found.tenants and found.cost is None

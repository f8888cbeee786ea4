"""What programs use is measured by the worker, reported with heartbeats, and suggests the sizes of the job."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.job_size import ENOUGH
from mainspring.store import job_usage
from mainspring.views.refs import job_row
from mainspring.worker.usage import MAX_JOBS, Usage, UsageTotals
from tests.conftest import Cluster
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio
BUSY = "import time; x = bytearray(300 << 20); end = time.process_time() + 0.15\nwhile time.process_time() < end: pass"


MEASURE = """
import asyncio, json, sys
from mainspring.worker.isolation.spawn import spawn

async def main():
    process = spawn([sys.executable, "-c", sys.argv[1]], env={})
    await process.wait()
    print(json.dumps([process.usage.memory, process.usage.cpu_ms]))

asyncio.run(main())
"""
"""In a process as small as a worker: Linux counts the memory of the parent at the start as that of the child."""


def test_a_program_is_measured() -> None:
    found = subprocess.run([sys.executable, "-c", MEASURE, BUSY], stdout=subprocess.PIPE, check=True)
    memory, cpu_ms = json.loads(found.stdout)
    assert 300 * 2**20 <= memory <= 400 * 2**20
    assert 150 <= cpu_ms <= 2_000


async def test_a_heartbeat_reports_and_the_job_shows_a_suggestion(cluster: Cluster, tmp_path: Path) -> None:
    name = f"etl-{uuid4().hex[:8]}"
    spec = JobSpec(name=name, task=ShellTask((sys.executable, "-c", BUSY)), resources={"memory": "64Mi", "cpu": 2})
    async with cluster.client() as client:
        await client.create_job(spec)
        options = ("--slots", "2", "--resources", "cpu=8,memory=1Ti")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options):
            started = [await client.trigger(name) for _ in range(ENOUGH)]
            for one in started:
                ended = await client.execution(one.execution_id, wait_s=60)
                assert ended.state == "succeeded", ended.error
            found = await client.job_size(name)
            async with asyncio.timeout(60):
                while found.attempts < ENOUGH:  # the next heartbeats bring them
                    found = await client.job_size(name)
        assert found.memory_max is not None and 300 * 2**20 <= found.memory_max <= 400 * 2**20
        assert found.cores_max is not None and 0.05 < found.cores_max <= 1.2
        assert found.too_small == ["memory"]
        assert found.suggested.memory in {"384Mi", "416Mi", "448Mi", "480Mi", "512Mi"}
        assert found.suggested.cpu is not None and found.suggested.timeout_s is None


async def test_a_worker_reports_only_of_jobs_in_its_queues(cluster: Cluster) -> None:
    client = cluster.client()
    names = [f"{queue}-{uuid4().hex[:8]}" for queue in ("short", "other")]
    for name, queue in zip(names, ("short", "other"), strict=True):
        await client.create_job(JobSpec(name=name, task=ShellTask(("true",)), queue=queue))
    ids = [(await job_row(cluster.database, name, tenant=1)).job_id for name in names]
    async with cluster.worker(), cluster.database.connection() as connection:
        session = await connection.fetchval("SELECT session_id FROM sessions WHERE ended_at IS NULL LIMIT 1")
        report = [wire.JobUsage(job_id, 1, 10, 20, 500, 2**20) for job_id in (*ids, uuid4())]
        await job_usage.add_usage(connection, session_id=session, usage=report)
        await job_usage.add_usage(connection, session_id=uuid4(), usage=report)  # no such session
        rows = await connection.fetch("SELECT job_id, attempts FROM job_usage WHERE job_id = ANY ($1)", ids)
    assert [tuple(row) for row in rows] == [(ids[0], 1)]
    await client.aclose()


def test_what_is_pending_is_bounded_and_survives_a_failed_heartbeat() -> None:
    totals, first = UsageTotals(), uuid4()
    totals.add(first, Usage(100, 2**20), 200)
    for _ in range(MAX_JOBS + 10):
        totals.add(uuid4(), Usage(1, 1), 1)
    taken = totals.take()
    assert len(taken) == MAX_JOBS and totals.take() == []
    totals.add(first, Usage(500, 2**10), 500)
    totals.keep(taken[:1])
    (one,) = totals.take()
    assert one == wire.JobUsage(first, 2, 600, 700, 1000, 2**20)

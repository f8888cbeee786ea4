"""Memory of a scheduler process beside 100,000 active jobs, 50,000 pending executions and 10,000 workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.fleet import fleet
from tests.support.scheduling import add

pytestmark = pytest.mark.anyio

JOBS, PENDING, WORKERS = 100_000, 50_000, 10_000
SCHEDULES = 1_000
MOST_MB = 200
COPY_SCHEDULES = """
INSERT INTO schedules (key)
SELECT json_build_object('cron', format('%s %s 1 1 *', n % 60, n / 60 % 24), 'tz', 'UTC')::text
FROM generate_series(0, $1::int - 1) AS n ON CONFLICT DO NOTHING"""
COPY_JOBS = """
WITH known AS (SELECT array_agg(schedule_id) AS ids FROM schedules)
INSERT INTO jobs SELECT (copy).* FROM (
    SELECT jsonb_populate_record(j, jsonb_build_object(
        'job_id', gen_random_uuid(), 'name', 'yearly-' || n, 'shard', n % 64,
        'schedule_id', known.ids[n % cardinality(known.ids) + 1])) AS copy
    FROM known, jobs j CROSS JOIN generate_series(1, $1::int) AS n WHERE j.name = 'yearly') AS copies"""
COPY_VERSIONS = """
INSERT INTO job_versions SELECT j.job_id, 1, v.tenant_id, v.spec, v.created_at, v.created_by
FROM jobs j CROSS JOIN job_versions v WHERE j.job_id <> v.job_id"""
ADD_PENDING = """
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank,
                        fire_at, due_at, created_by)
SELECT gen_random_uuid(), job_id, tenant_id, 1, shard, 5, 'waiting', 'manual', queue, 0, db_now() + interval '1 day',
       db_now() + interval '1 day', 'test'
FROM jobs ORDER BY job_id LIMIT $1"""
ADD_WORKERS = """
WITH w AS (
    INSERT INTO workers (worker_id, tenant_id, name)
    SELECT gen_random_uuid(), 1, 'worker-' || n FROM generate_series(1, $1::int) AS n RETURNING worker_id
)
INSERT INTO sessions (session_id, tenant_id, worker_id, state, host, version, slots, queues, kinds, lease_expires_at)
SELECT gen_random_uuid(), 1, worker_id, 'active', 'host', '1', 4, '{short}', '{noop}',
       db_now() + interval '1 hour'
FROM w"""


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.requirement(148)
async def test_a_scheduler_holds_little_memory(postgres: EmbeddedServer, tmp_path: Path) -> None:
    url = await clone(postgres)
    async with Database(url) as database:
        await add(database, "yearly", schedule=ScheduleSpec(cron="0 0 1 1 *", timezone="UTC"))
        async with database.transaction() as connection:
            await connection.execute(COPY_SCHEDULES, SCHEDULES)
            await connection.execute(COPY_JOBS, JOBS - 1, timeout=300)
            await connection.execute(COPY_VERSIONS, timeout=300)
            await connection.execute(ADD_PENDING, PENDING, timeout=300)
            await connection.execute(ADD_WORKERS, WORKERS)
            await connection.execute("UPDATE shards SET watermark = db_now(), changes = changes + 1")
        async with fleet(postgres, url, tmp_path, schedulers=1) as running:
            (counts,) = await running.ask(
                "SELECT (SELECT count(*) FROM jobs WHERE schedule_id IS NOT NULL) AS jobs,"
                " (SELECT count(*) FROM executions) AS pending,"
                " (SELECT count(*) FROM sessions WHERE ended_at IS NULL) AS workers"
            )
            mb = resident_mb(running.pid("scheduler-1"))
    print(f"{mb:.0f} MB")
    assert tuple(counts) == (JOBS, PENDING, WORKERS)
    assert mb < MOST_MB

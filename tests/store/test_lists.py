"""Lists that take a shorter way when there is much: they must not tell anything else."""

from __future__ import annotations

from uuid import UUID

import pytest

from mainspring.clock import instant
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs as intake
from mainspring.store import executions, jobs
from mainspring.store.db import Database, database_now_ms
from mainspring.store.executions import LiveCounts
from mainspring.testing.clock import VirtualClock

LAST = UUID(int=(1 << 128) - 1)
SPREAD = """
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, finished_at, reason)
    SELECT execution_id(lpad(to_hex(n), 12, '0'), $1, n::text), $1, $2, 1, 5, 1, s.state, 'manual', 'short', d.at, d.at,
           d.at, 'a test'
    FROM generate_series(1, 60) n
    CROSS JOIN LATERAL (SELECT (ARRAY['succeeded', 'failed', 'lost', 'skipped', 'cancelled', 'timed_out'])[1 + n % 6]) AS s (state)
    CROSS JOIN LATERAL (SELECT db_now() - n * interval '3 hours') AS d (at)
"""  # noqa: E501


async def made(database: Database, name: str, every: str, tenant: int = 1) -> UUID:
    spec = JobSpec(name=name, task=NoopTask(), schedule=ScheduleSpec(every=every, aligned=True))
    return await intake.create(database, spec, tenant=tenant, by="test")


async def test_rare_states_are_listed_as_all_are(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await made(fresh, "spread", "1h")
    async with fresh.connection() as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'other')")
        await connection.execute(SPREAD, job_id, 1)
        await connection.execute(SPREAD.replace("n::text", "'other' || n"), job_id, 2)
        every = await executions.list_executions(connection, tenant=1, before=LAST, limit=200)
        assert len(every) == 60
        for states in (["lost"], ["failed", "timed_out", "lost"], ["skipped", "skipped"], ["cancelled", "succeeded"]):
            expected = [e for e in every if e.state in states]
            for limit in (3, 200):
                found = await executions.list_executions(connection, tenant=1, before=LAST, limit=limit, states=states)
                assert found == expected[:limit], states
            after = await executions.list_executions(
                connection, tenant=1, before=expected[2].execution_id, limit=200, states=states
            )
            assert after == expected[3:]


async def test_the_last_executions_of_a_job_reach_back_beyond_two_days(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await made(fresh, "spread", "1h")
    async with fresh.connection() as connection:
        await connection.execute(SPREAD.replace("to_hex(n)", "to_hex(1000 - n)"), job_id, 1)
        now = instant(await database_now_ms(connection))
        found = (await jobs.last_executions(connection, tenant=1, job_ids=[job_id], now=now))[job_id]
        ids = [e.execution_id for e in found]
        assert len(ids) == 20 and ids == sorted(ids, reverse=True)
        assert (found[0].fire_at - found[-1].fire_at).days == 2
        other = await made(fresh, "other", "1h")
        both = await jobs.last_executions(connection, tenant=1, job_ids=[job_id, other], now=now)
        assert both == {job_id: found, other: []}, "one job and several are read by different statements"


async def test_the_schedules_of_a_tenant_with_many_jobs_are_those_of_any(
    fresh: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fresh.connection() as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'other')")
    for n, every in enumerate(("1h", "2h", "1h", "3h")):
        await made(fresh, f"job-{n}", every)
    await made(fresh, "theirs", "5h", tenant=2)
    await intake.pause(fresh, await made(fresh, "paused", "7h"), tenant=1, reason="")
    async with fresh.connection() as connection:
        expected = await jobs.tenant_schedules(connection, tenant=1, limit=100)
        assert len(expected) == 3
        monkeypatch.setattr(jobs, "MANY_JOBS", 2)
        assert sorted(await jobs.tenant_schedules(connection, tenant=1, limit=100)) == sorted(expected)
        assert len(await jobs.tenant_schedules(connection, tenant=1, limit=2)) == 2
        monkeypatch.setattr(jobs, "WALKED_SCHEDULES", 1)
        assert len(await jobs.tenant_schedules(connection, tenant=1, limit=100)) == 1


LIVE = """
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank,
                            fire_at, due_at)
    SELECT gen_random_uuid(), gen_random_uuid(), CASE WHEN n % 4 = 0 THEN 2 ELSE 1 END, 1, n % 64, 5,
           CASE WHEN n <= 640 THEN 'waiting' ELSE 'blocked' END, 'fire', 'short', n, db_now(),
           db_now() + interval '1 day'
    FROM generate_series(1, 720) n
"""


async def test_waiting_executions_are_counted_within_a_bound(fresh: Database) -> None:
    async with fresh.connection() as connection:
        assert await executions.live_counts(connection, tenant=1) == LiveCounts(0, 0, exact=True)
        await connection.execute(LIVE)
        await connection.execute("ANALYZE executions")
        assert await executions.live_counts(connection, tenant=1) == LiveCounts(0, 540, exact=True)
        assert await executions.live_counts(connection, tenant=2) == LiveCounts(0, 180, exact=True)
        few = await executions.live_counts(connection, tenant=1, of_shard=5, blocked=40)
        assert not few.exact and few.waiting == pytest.approx(540, rel=0.2)

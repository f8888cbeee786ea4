"""Many at once: a thousand jobs due in one second, a flood of one tenant, a wheel of a third of a million jobs."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
import tracemalloc
from uuid import UUID

import pytest

from mainspring.domain.alert import BUILT_IN
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.scheduler.schedule_wheel import ScheduleWheel
from mainspring.store.db import Database
from mainspring.store.schedules import ShardSchedule
from mainspring.testing.clock import VirtualClock
from tests.support.dispatchers import fleet
from tests.support.figures import record
from tests.support.scheduling import add, copies, scheduler_on, sees_the_time, step
from tests.support.settling import SettlingBench
from tests.support.tenants import add_tenant

pytestmark = pytest.mark.anyio


async def priorities(database: Database) -> dict[UUID, int]:
    async with database.connection() as connection:
        return {r["job_id"]: r["priority"] for r in await connection.fetch("SELECT job_id, priority FROM jobs")}


@pytest.mark.fault("F17")
@pytest.mark.requirement(18)
async def test_a_thousand_due_in_one_second_all_fire_the_highest_priority_first(
    fresh: Database, virtual: VirtualClock
) -> None:
    for priority in range(11):
        await add(fresh, f"p{priority}", priority=priority, overlap="allow")
    await copies(fresh, 100)
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await bench.live() == {"queued": 11 * 101}
    known, session = await priorities(fresh), await bench.session(lease_s=1e6)
    batches = []
    while batch := await bench.claim(session, slots=100):
        batches.append([known[row["job_id"]] for row in batch])
    assert sum(map(len, batches)) == 11 * 101
    for sooner, later in itertools.pairwise(batches):
        assert min(sooner) >= max(later)


@pytest.mark.requirement(35)
@pytest.mark.parametrize("slots", [1, 10])
async def test_a_tenants_flood_does_not_delay_the_fires_of_another(
    fresh: Database, virtual: VirtualClock, slots: int
) -> None:
    """Queued long before, of the highest priority, and a herd at the same instant: the other tenant's ten fires are
    decided in the same tick, and start within twice what they would need alone and one round of what was running."""
    async with fleet(fresh, dispatchers=1) as found:
        other = await add_tenant(fresh, "other")
        await found.submit(await found.job("flood", priority=10), 1000)
        await found.job("herd", priority=10, schedule=ScheduleSpec(every=60, aligned=True))
        await copies(fresh, 500)
        for n in range(10):
            few = ScheduleSpec(every=60, aligned=True)
            await found.job(f"few-{n}", tenant=other, priority=0, schedule=few)
        scheduler = await scheduler_on(fresh)
        await virtual.advance(seconds=60)
        await step(scheduler)
        async with fresh.connection() as connection:
            decided = await connection.fetchval(
                "SELECT count(*) FROM executions WHERE tenant_id = $1 AND queued_at = db_now()", other
            )
        assert decided == 10
        session = await found.session(slots=slots, shared=True)

        def started() -> list[int]:
            return [n for n, (name, _) in enumerate(found.started) if name.startswith("few")]

        await found.work(found.dispatchers[0], session, lambda: len(started()) == 10, slots=slots)
        assert max(started()) < 2 * 10 + slots


@pytest.mark.requirement(33)
async def test_schedulers_promote_only_what_is_in_their_own_shards(fresh: Database, virtual: VirtualClock) -> None:
    """The shard is the segment: two pollers at once look at different rows, and each row becomes due once."""
    bench = SettlingBench(fresh)
    for n in range(100):
        at = virtual.now.replace(minute=1)
        await add(fresh, f"once-{n}", schedule=ScheduleSpec(at=at.isoformat()))
    one, two = [await scheduler_on(fresh) for _ in range(2)]
    for scheduler in (one, two, one, two):
        await step(scheduler)
    assert len(one.shards) == len(two.shards) == 32 and not set(one.shards) & set(two.shards)
    assert await bench.live() == {"waiting": 100}
    for _ in range(3):
        await virtual.advance(seconds=20)
        await two.lease()
        await one.lease()
    async with fresh.connection() as connection:
        for scheduler, shards in ((one, set(one.shards)), (two, set(one.shards) | set(two.shards))):
            sees_the_time(scheduler, virtual.now)
            await scheduler.decide()
            rows = await connection.fetch("SELECT DISTINCT shard FROM executions WHERE state = 'queued'")
            assert {row["shard"] for row in rows} <= shards and rows, "nothing of the other's"
    assert await bench.live() == {"queued": 100}


DISTINCT_SCHEDULES = """
INSERT INTO schedules (key) SELECT '{"every_ms":' || 3600000 + 1000 * n || ',"phase_ms":0}'
FROM generate_series(1, $1::int) AS n"""
A_JOB_FOR_EACH = """
INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, queue, priority, overlap,
                  misfire, misfire_s, misfire_most, created_at, updated_at, line_id)
SELECT job_id, tenant_id, name || '-' || schedule_id, 1, get_byte(uuid_send(job_id), 15) & 63, 0, schedule_id,
       active_from, queue, priority, overlap, misfire, misfire_s, misfire_most, created_at, updated_at, line_id
FROM (SELECT gen_random_uuid() AS job_id, s.schedule_id, tenant_id, name, active_from, queue, priority, overlap,
             misfire, misfire_s, misfire_most, j.created_at, updated_at, line_id
      FROM jobs j JOIN schedules s ON s.schedule_id <> j.schedule_id) AS copies"""
COLD_JOBS = 333_000
COLD_S = 10.0


@pytest.mark.requirement(22)
async def test_a_cold_start_with_a_third_of_a_million_distinct_schedules(
    fresh: Database, virtual: VirtualClock
) -> None:
    """No two jobs share a schedule, so nothing that is interned shortens the rebuild."""
    await add(fresh, "first", schedule=ScheduleSpec(every=3600, aligned=True))
    async with fresh.connection() as connection:
        await connection.execute(DISTINCT_SCHEDULES, COLD_JOBS - 1, timeout=300)
        await connection.execute(A_JOB_FOR_EACH, timeout=300)
        assert await connection.fetchval("SELECT count(DISTINCT schedule_id) FROM jobs") == COLD_JOBS
        await connection.execute("VACUUM (ANALYZE) jobs", timeout=300)
    begun, used = time.perf_counter(), time.process_time()
    scheduler = await scheduler_on(fresh)
    took_s, cpu_s = time.perf_counter() - begun, time.process_time() - used
    assert scheduler.shards == list(range(64))
    record("cold start", jobs=COLD_JOBS, s=round(took_s, 2), cpu_s=round(cpu_s, 2))
    assert took_s < COLD_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), "so many processes share a core"
    await virtual.advance(hours=2)
    await step(scheduler)
    states = await SettlingBench(fresh).live()
    assert states["queued"] > 3000, "and it fires"


RESIDENT = """
import os
from mainspring.scheduler.schedule_wheel import ScheduleWheel
from mainspring.store.schedules import ShardSchedule
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
wheel = ScheduleWheel(0)
rows = (ShardSchedule(n, n % 64, '{"every_ms":%d,"phase_ms":0}' % (3600000 + n), 1, 0, False) for n in range(100_000))
before = resident()
wheel.add(rows, dict.fromkeys(range(64), 0), upto_ms=1000)
print(resident() - before)
"""


@pytest.mark.requirement(29)
def test_the_wheel_is_small_and_a_crowded_shard_is_told() -> None:
    """A hundred thousand jobs with a schedule of their own each, and as many that share two hundred."""

    def grown(distinct: int) -> float:
        rows = [
            ShardSchedule(n % distinct, n % 64, f'{{"every_ms":{3_600_000 + n % distinct},"phase_ms":0}}', 1, 0, False)
            for n in range(100_000)
        ]
        gc.collect()
        tracemalloc.start()
        wheel = ScheduleWheel(0)
        wheel.add(rows, dict.fromkeys(range(64), 0), upto_ms=1000)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(wheel) == distinct
        return size / 100_000

    own, shared = grown(100_000), grown(200)
    rss_bytes = int(subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True).stdout)
    print(json.dumps({"rss_bytes_of_100000_jobs": rss_bytes}))
    assert rss_bytes < 100_000 * 1_000, "resident memory of a process with 100,000 schedules of their own"
    print(json.dumps({"wheel_bytes_per_job": round(own), "shared": round(shared, 1)}))
    assert own < 600
    assert shared < 5
    assert BUILT_IN["shard_too_large"].threshold == 500_000

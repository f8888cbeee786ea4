"""Scheduler performance: a million jobs, herds, sustained firing, lateness; real processes on a durable PostgreSQL.

Jobs are inserted directly into the tables (a million HTTP calls would measure the API); everything after that is as in
production. BENCH_PARTS=cold,herd,sustained,lateness,start selects parts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from harness import EMPTY, Machine, machine, publish, quantile

from mainspring.domain.job import JobSpec, NoopTask, Task
from mainspring.domain.schedule.schedule import ScheduleSpec, resolve
from mainspring.intake import jobs as intake

PARTS = os.environ.get("BENCH_PARTS", "cold,herd,sustained,lateness,start").split(",")
JOBS = int(os.environ.get("BENCH_JOBS", "1000000"))
HERD = int(os.environ.get("BENCH_HERD", "100000"))
SUSTAINED_S = int(os.environ.get("BENCH_SUSTAINED_S", "20"))
SUSTAINED_RATE = int(os.environ.get("BENCH_SUSTAINED_RATE", "40000"))
NOOP = NoopTask()

SEED_SCHEDULES = """
INSERT INTO schedules (key) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING"""
# A job's id decides its shard; the n-th job gets the n-th schedule, round robin.
SEED_JOBS = """
WITH known AS (
    SELECT array_agg(s.schedule_id ORDER BY k.place) AS ids, count(*) AS n
    FROM unnest($1::text[]) WITH ORDINALITY AS k (key, place) JOIN schedules s USING (key)
), made AS (
    SELECT n, (overlay(gen_random_uuid()::text PLACING '7' FROM 15))::uuid AS job_id
    FROM generate_series($2::int, $3::int - 1) AS n
), fresh AS (
    INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, queue, priority,
                      overlap, misfire, misfire_s, misfire_most, created_at, updated_at, line_id)
    SELECT job_id, 1, $4 || n, 1, get_byte(uuid_send(job_id), 15) & 63, 0,
           (SELECT ids FROM known)[n % (SELECT n FROM known) + 1], now(), 'short', n % 11, $5, 'latest', 86400, 100,
           now(), now(), $6
    FROM made RETURNING job_id, name
)
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by)
SELECT job_id, 1, 1, jsonb_build_object('name', name, 'task', $7::jsonb), 'bench' FROM fresh"""


def keys_of(specs: Sequence[ScheduleSpec]) -> list[str]:
    now_ms = int(time.time() * 1000)
    found = [resolve(spec, now_ms=now_ms).key for spec in specs]
    return [key for key in found if key is not None]


def every_key(every_ms: int, phase_ms: int) -> str:
    return f'{{"every_ms":{every_ms},"phase_ms":{phase_ms % every_ms}}}'


async def seed(
    target: Machine, keys: list[str], *, jobs: int, prefix: str, overlap: str = "skip", task: Task = NOOP
) -> None:
    first = await intake.create(target.database, JobSpec(name=f"{prefix}first", task=task), tenant=1, by="bench")
    stored = msgspec.to_builtins(task)
    async with target.database.connection() as connection:
        line = await connection.fetchval("SELECT line_id FROM jobs WHERE job_id = $1", first)
        for start in range(0, len(keys), 50_000):
            await connection.execute(SEED_SCHEDULES, keys[start : start + 50_000], timeout=600)
        distinct = len(keys) > 50_000
        for start in range(0, jobs, 50_000):
            end = min(jobs, start + 50_000)
            part = keys[start:end] if distinct else keys
            await connection.execute(SEED_JOBS, part, start, end, prefix, overlap, line, stored, timeout=600)
        await connection.execute("UPDATE shards SET watermark = clock_timestamp(), changes = changes + 1")
        await connection.execute("VACUUM (ANALYZE) jobs", timeout=600)
        await connection.execute("VACUUM (ANALYZE) schedules", timeout=600)


async def clear(target: Machine) -> None:
    async with target.database.connection() as connection:
        await connection.execute(EMPTY, timeout=600)


async def until_owned(target: Machine) -> float:
    """Return the seconds until every shard is decided up to now."""
    begun = time.perf_counter()
    async with target.database.connection() as connection:
        since = await connection.fetchval("SELECT clock_timestamp()")
        while await connection.fetchval("SELECT min(watermark) FROM shards") <= since:
            await asyncio.sleep(0.02)
    return time.perf_counter() - begun


def rss_mb(target: Machine, role: str = "scheduler") -> float:
    pages = int(Path(f"/proc/{target.processes[role][0].pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def cold(target: Machine, keys: list[str]) -> tuple[float, float]:
    """Return the seconds from process start until it owns all shards, and its memory then."""
    await seed(target, keys, jobs=JOBS, prefix="cold-")
    target.serve("scheduler")
    took = await until_owned(target)
    memory = rss_mb(target)
    target.stop("scheduler")
    await clear(target)
    return took, memory


async def decided(target: Machine, count: int, fire_ms: float, timeout_s: float = 60) -> list[float]:
    """Return for each execution the seconds from its instant to its decision."""
    async with target.database.connection() as connection:
        end = time.time() + timeout_s
        while time.time() < end:
            if await connection.fetchval("SELECT count(*) FROM executions") >= count:
                break
            await asyncio.sleep(0.1)
        rows = await connection.fetch(
            "SELECT extract(epoch FROM queued_at)::float AS at FROM executions WHERE fire_at = to_timestamp($1)",
            fire_ms / 1000,
        )
    return sorted(row["at"] - fire_ms / 1000 for row in rows)


async def herd(target: Machine) -> list[float]:
    """HERD jobs on one schedule, all due at one instant."""
    fire_ms = (int(time.time()) + 40) * 1000
    await seed(target, [every_key(3_600_000, fire_ms)], jobs=HERD, prefix="herd-")
    target.serve("scheduler")
    await until_owned(target)
    assert time.time() * 1000 < fire_ms, "seeding took too long"
    await asyncio.sleep(fire_ms / 1000 - time.time())
    found = await decided(target, HERD, fire_ms)
    assert len(found) == HERD, f"{len(found)} of {HERD} decided"
    target.stop("scheduler")
    await clear(target)
    return found


async def sustained(target: Machine) -> tuple[float, float, dict[str, float]]:
    """SUSTAINED_RATE jobs are due every second; return decisions per second while busy, share kept up with, and CPU."""
    every = 10
    keys = [every_key(every * 1000, n * 100) for n in range(every * 10)]
    await seed(target, keys, jobs=SUSTAINED_RATE * every, prefix="s-", overlap="allow")
    target.serve("scheduler")
    await until_owned(target)
    async with target.database.connection() as connection:
        first = await connection.fetchval("SELECT count(*) FROM executions")
        before, begun = target.cpu_s(), time.perf_counter()
        await asyncio.sleep(SUSTAINED_S)
        last = await connection.fetchval("SELECT count(*) FROM executions")
        took = time.perf_counter() - begun
    used = {role: s - before.get(role, 0.0) for role, s in target.cpu_s().items()}
    target.stop("scheduler")
    await clear(target)
    n = last - first
    return n / took, n / took / SUSTAINED_RATE, {role: s / n * 1e6 for role, s in used.items()}


async def lateness(target: Machine, seconds: int = 20) -> list[float]:
    """1,000 schedules per second with distinct instants; return milliseconds from due to decided."""
    keys = [every_key(10_000, n) for n in range(10_000)]
    await seed(target, keys, jobs=10_000, prefix="late-", overlap="allow")
    target.serve("scheduler")
    await until_owned(target)
    await asyncio.sleep(seconds)
    async with target.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT extract(epoch FROM queued_at - fire_at)::float * 1000 AS ms FROM executions"
            " WHERE fire_at > clock_timestamp() - make_interval(secs => $1)",
            seconds - 2.0,
        )
    target.stop("scheduler")
    await clear(target)
    return [row["ms"] for row in rows]


async def start_together(target: Machine, schedules: int = 10_000) -> list[float]:
    """10,000 distinct schedules due at one instant, executed by a worker; return seconds from due to started."""
    fire_ms = (int(time.time()) + 30) * 1000
    keys = [every_key(3_600_000 + n * 1000, fire_ms) for n in range(schedules)]
    await seed(target, keys, jobs=schedules, prefix="start-")
    target.serve("scheduler")
    target.serve("api")
    await target.until_ready()
    target.work(slots=4000)
    await until_owned(target)
    assert time.time() * 1000 < fire_ms, "seeding took too long"
    await asyncio.sleep(fire_ms / 1000 - time.time() + 1)
    async with target.database.connection() as connection:
        for _ in range(300):
            if await connection.fetchval("SELECT count(*) FROM history") >= schedules:
                break
            await asyncio.sleep(0.1)
        rows = await connection.fetch("SELECT extract(epoch FROM started_at - fire_at)::float AS s FROM history")
    for role in ("worker", "scheduler", "api"):
        target.stop(role)
    await clear(target)
    assert len(rows) == schedules, f"{len(rows)} of {schedules} executed"
    return sorted(row["s"] for row in rows)


async def main() -> None:
    lines = ["| | measured | goal |", "|---|---|---|"]
    figures: dict[str, Any] = {}

    def show(what: str, measured: str, goal: str, **found: Any) -> None:
        line = f"| {what} | {measured} | {goal} |"
        lines.append(line)
        figures.update(found)
        print(line, flush=True)

    async with machine() as target:
        if "cold" in PARTS:
            zones = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
            few = keys_of([ScheduleSpec(cron=f"{n % 60} {n % 24} * * *", timezone=zones[n % 4]) for n in range(200)])
            took, memory = await cold(target, few)
            show(f"cold start, {JOBS:,} jobs on 200 schedules, s", f"{took:.1f}", "3", cold_start_s=round(took, 2))
            show("resident memory then, MB", f"{memory:.0f}", "150", rss_mb=round(memory))
            # Half anchored intervals, half crons with seconds, so that all schedules are distinct.
            intervals = [every_key(3_600_000, n * 7) for n in range(JOBS // 2)]
            crons = [
                f'{{"cron":"{n % 60} {n // 60 % 60} {n // 3600 % 24} {n // 86400 + 1} * *","tz":"{zones[n % 4]}"}}'
                for n in range(JOBS - JOBS // 2)
            ]
            took, memory = await cold(target, [key for pair in zip(intervals, crons, strict=True) for key in pair])
            show(f"cold start, {JOBS:,} distinct schedules, s", f"{took:.1f}", "20", cold_distinct_s=round(took, 2))
            show("resident memory then, MB", f"{memory:.0f}", "600", rss_distinct_mb=round(memory))
        if "herd" in PARTS:
            found = await herd(target)
            show(f"{HERD:,} jobs due at once: first decided, ms", f"{found[0] * 1000:.0f}", "100")
            show(f"{HERD:,} jobs due at once: all decided, s", f"{found[-1]:.2f}", "4, aim 2", herd_100k_s=found[-1])
        if "sustained" in PARTS:
            rate, share, cpu = await sustained(target)
            spent = " · ".join(f"{role} {us:.1f}" for role, us in sorted(cpu.items()))
            show(
                f"decided per second, {SUSTAINED_RATE:,} due each second ({share:.0%} of that)",
                f"{rate:,.0f}",
                "30,000",
                decided_per_s=round(rate),
            )
            show("CPU µs per decision", spent, "")
        if "lateness" in PARTS:
            ms = await lateness(target)
            p50, p99 = quantile(ms, 0.5), quantile(ms, 0.99)
            show(
                "due to decided at 1,000 distinct instants/s, p50 / p99 ms",
                f"{p50:.1f} / {p99:.1f}",
                "p99 50",
                lateness_p50_ms=round(p50, 1),
                lateness_p99_ms=round(p99, 1),
            )
        if "start" in PARTS:
            s = await start_together(target)
            show("10,000 schedules due at once: last started by a worker, s", f"{s[-1]:.2f}", "1", start_10k_s=s[-1])
    publish("firing", lines, figures)


if __name__ == "__main__":
    asyncio.run(main())

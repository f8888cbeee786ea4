"""A fleet of ten thousand workers on one api process, with 100,000 active jobs and 50,000 waiting executions.

Simulated workers (`simulated.py`) receive work and send heartbeats over real HTTP; 20,000 executions of some seconds
are assigned to them and settled, so that thousands run at once. BENCH_WAY is `stream` (the default) or `poll`: each is
published under its own heading. BENCH_FLEET sets the number of workers, BENCH_FLEET_LEASE the lease: a slow machine
needs a longer one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from firing import every_key, rss_mb, seed
from harness import Machine, machine, publish

from mainspring import wire
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.store.db import Connection

WAY = os.environ.get("BENCH_WAY", "stream")
WORKERS = int(os.environ.get("BENCH_FLEET", "10000"))
IDLE_S = float(os.environ.get("BENCH_FLEET_S", "30"))
JOBS = int(os.environ.get("BENCH_FLEET_JOBS", "100000"))
PENDING = int(os.environ.get("BENCH_FLEET_PENDING", "50000"))
EXECUTIONS = 2 * WORKERS
HOLD_S = 5.0
LEASE_S = float(os.environ.get("BENCH_FLEET_LEASE", "20"))
PROCESSES = 2
COMING_UP = 250
"""Workers that begin in a second."""
MOST_S = 300.0
"""For any of the parts: what takes longer is broken off, and told."""


def start_fleet(target: Machine, first: int, count: int) -> subprocess.Popen[bytes]:
    script = Path(__file__).parent / "simulated.py"
    over_s = WORKERS / COMING_UP
    argv = [sys.executable, script, target.url, target.worker_token, WAY, *map(str, (first, count, over_s, HOLD_S))]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


async def grown(connection: Connection, query: str, least: int) -> tuple[int, int]:
    """Wait until the number is reached; return its last value, and the most executions seen running at once."""
    end, found, running = time.perf_counter() + MOST_S, 0, 0
    while time.perf_counter() < end:
        found = await connection.fetchval(query)
        running = max(running, await connection.fetchval("SELECT count(*) FROM executions WHERE state = 'running'"))
        if found >= least:
            break
        await asyncio.sleep(0.2)
    return found, running


async def submit(target: Machine, count: int, at: datetime | None = None) -> None:
    async with target.client() as client:
        for start in range(0, count, 1000):
            await client.submit([wire.BatchItem(job="noop", at=at)] * min(1000, count - start))


async def share(target: Machine, seconds: float) -> dict[str, float]:
    """Return the CPU use of each role over the next seconds, as a share of one core."""
    used, begun = target.cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - begun
    return {role: (s - used[role]) / took for role, s in target.cpu_s().items()}


async def measure(target: Machine, fleets: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    found: dict[str, Any] = {"before_mb": rss_mb(target, "api")}
    begun = time.perf_counter()
    each = WORKERS // PROCESSES
    fleets += [start_fleet(target, n * each, each) for n in range(PROCESSES)]
    async with target.database.connection() as connection:
        query = "SELECT count(*) FROM sessions WHERE ended_at IS NULL"
        found["live"], _ = await grown(connection, query, each * PROCESSES)
        found["up_s"] = time.perf_counter() - begun
        for fleet in fleets:
            fleet.send_signal(signal.SIGUSR1)
        found["idle"] = await share(target, IDLE_S)
        found["idle_mb"] = rss_mb(target, "api")
        begun = time.perf_counter()
        submitting = asyncio.create_task(submit(target, EXECUTIONS))
        query = "SELECT count(*) FROM history WHERE state = 'succeeded'"
        found["settled"], found["running"] = await grown(connection, query, EXECUTIONS)
        await submitting
        found["work_s"] = time.perf_counter() - begun
        await asyncio.sleep(LEASE_S / 4 + 1)  # one more heartbeat of every worker
        found["api_mb"], found["scheduler_mb"] = rss_mb(target, "api"), rss_mb(target, "scheduler")
        found["lost"] = await connection.fetchval("SELECT count(*) FROM sessions WHERE ended_at IS NOT NULL")
        found["attempts"] = await connection.fetchval("SELECT coalesce(sum(attempt), 0) FROM history")
    return found


def end(fleets: list[subprocess.Popen[bytes]]) -> list[dict[str, Any]]:
    told = []
    for fleet in fleets:
        fleet.send_signal(signal.SIGTERM)
    for fleet in fleets:
        try:
            told.append(json.loads(fleet.communicate(timeout=30)[0]))
        except (subprocess.TimeoutExpired, ValueError):
            fleet.kill()
            raise
    return told


async def main() -> None:
    if WAY not in ("stream", "poll"):
        sys.exit(f"BENCH_WAY must be stream or poll (got {WAY})")
    fleets: list[subprocess.Popen[bytes]] = []
    async with machine() as target:
        # Yearly, half a year from now: the jobs are active, and none is due.
        year_ms = 31_536_000_000
        keys = [every_key(year_ms, int(time.time() * 1000) + year_ms // 2 + n * 1000) for n in range(1000)]
        await seed(target, keys, jobs=JOBS, prefix="year-")
        port = target.url.rpartition(":")[2]
        target.spawn(
            "api",
            "serve",
            "--roles",
            "api",
            "--port",
            port,
            "--session-lease",
            str(LEASE_S),
            MAINSPRING_DATABASE_URL=target.postgres.dsn,
        )
        target.serve("scheduler")
        await target.until_ready()
        async with target.client() as client:
            await client.create_job(JobSpec(name="noop", task=NoopTask()))
        await submit(target, PENDING, at=datetime.now(UTC) + timedelta(days=1))
        try:
            found = await measure(target, fleets)
            told = end(fleets)
        finally:
            for fleet in fleets:
                if fleet.poll() is None:
                    fleet.kill()
    report(found, told)


def report(found: dict[str, Any], told: list[dict[str, Any]]) -> None:
    p99, worst = (max(t[key] for t in told) * 1000 for key in ("p99", "max"))
    shares = " · ".join(f"{role} {100 * s:.0f} %" for role, s in sorted(found["idle"].items()))
    keys = ("registered", "opened", "failed", "broken", "refused", "done", "beats")
    total = {key: sum(t[key] for t in told) for key in keys}
    simulator_s = sum(t["cpu_s"] for t in told)
    publish(
        "fleet" if WAY == "stream" else "fleet with polls",
        [
            f"- {WORKERS:,} simulated workers of 4 slots with {WAY}s, one api process, {JOBS:,} active jobs,"
            f" {PENDING:,} pending executions; then {EXECUTIONS:,} executions of {HOLD_S:g} s among the workers",
            "",
            "| | measured | goal |",
            "|---|---|---|",
            f"| sessions alive, s until all were | {found['live']:,}, {found['up_s']:.0f} | {WORKERS:,} |",
            *([f"| streams opened | {total['opened']:,} | {WORKERS:,} |"] if WAY == "stream" else []),
            f"| sessions lost, requests failed | {found['lost']}, {total['failed']} | 0, 0 |",
            f"| connections cut, requests put off by 503 | {total['broken']}, {total['refused']} | 0, 0 |",
            f"| executions settled, in attempts | {found['settled']:,}, {found['attempts']:,} | {EXECUTIONS:,} each |",
            f"| most running at once | {found['running']:,} | 3,472 |",
            f"| s from the first submission until all had ended | {found['work_s']:.1f} | |",
            f"| heartbeats answered, p99 and max ms | {total['beats']:,}, {p99:.0f}, {worst:.0f} |"
            f" lease {LEASE_S:g} s |",
            f"| memory of the api process, MB: before, idle, after | {found['before_mb']:.0f}, {found['idle_mb']:.0f},"
            f" {found['api_mb']:.0f} | |",
            f"| memory of the scheduler, MB | {found['scheduler_mb']:.0f} | 200 |",
            f"| CPU while the fleet idles, of one core | {shares} | |",
            f"| CPU of the simulator, s in all | {simulator_s:.0f} | |",
        ],
        {
            "way": WAY,
            "workers": found["live"],
            "lost": found["lost"],
            **total,
            "settled": found["settled"],
            "running": found["running"],
            "beat_p99_ms": round(p99),
            "beat_max_ms": round(worst),
            "api_before_rss_mb": round(found["before_mb"]),
            "api_idle_rss_mb": round(found["idle_mb"]),
            "api_rss_mb": round(found["api_mb"]),
            "scheduler_rss_mb": round(found["scheduler_mb"]),
            "api_cpu": round(found["idle"]["api"], 2),
            "postgresql_cpu": round(found["idle"]["postgresql"], 2),
            "simulator_cpu_s": round(simulator_s),
        },
        command="make bench ARGS=fleet" if WAY == "stream" else "BENCH_WAY=poll make bench ARGS=fleet",
    )
    for t in told:
        if t["why"]:
            print(t["why"])


if __name__ == "__main__":
    asyncio.run(main())

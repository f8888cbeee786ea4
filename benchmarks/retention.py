"""Retention at size: `mainspring db prune` drops 30 of 40 days of a history of 10 million executions, under load.

Executions are submitted over HTTP at a steady rate and settled by a worker, before and during the pruning. Pauses are
what a user of the API sees: the longest that a submission took, and the longest from due to start. Those of the time
before are beside them. Needs about 8 GB of disk in the temporary folder (TMPDIR).

    python benchmarks/retention.py                                   # 10 million; about 15 minutes, most of it seeding
    python benchmarks/retention.py --executions 1000000 --no-write
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg
from harness import Machine, machine, publish, quantile
from seed import seed
from seed_plan import Plan

from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.store.db import connection_settings

DAYS = 41
"""Forty whole days, and today."""
KEPT_DAYS = 10
JOBS = 1_000
QUEUE = "bench"
"""Seeded executions are in other queues: the worker takes those of the load only."""
BEFORE_S = 10.0
AFTER_S = 5.0
IN_FLIGHT = 200
GOAL_DROP_S = 10.0
GOAL_PAUSE_MS = 1_000
EDGE = "SELECT date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(days => $1)"
DROPPED = """
SELECT count(*) FILTER (WHERE relname ~ '^history_') AS history,
       count(*) FILTER (WHERE relname ~ '^log_chunks_') AS output
FROM pg_class WHERE relkind = 'r' AND relname ~ '^(history|log_chunks)_2'
  AND relnamespace = 'mainspring'::regnamespace AND substring(relname FROM '[0-9]+$') < $1"""
LATE = """
SELECT extract(epoch FROM started_at - due_at) * 1000 AS late_ms, extract(epoch FROM started_at)::float8 AS started_s
FROM history WHERE job_id = $1 AND due_at >= $2 AND due_at < $3 ORDER BY started_at"""
FAILED = "SELECT count(*) FROM history WHERE job_id = $1 AND due_at >= $2 AND state <> 'succeeded'"
OPEN = "SELECT count(*) FROM executions WHERE job_id = $1"
BEYOND = "SELECT count(*) FROM history WHERE finished_at < $1"


@dataclass
class Submissions:
    """Submissions at a steady rate: when each was sent, and how long it took, in seconds."""

    rate: float
    sent: list[tuple[float, float]] = field(default_factory=list)
    skipped: int = 0
    over: bool = False

    async def run(self, client: AsyncClient) -> None:
        """Send at fixed instants, whether or not earlier ones have been answered, so that a pause is seen by all."""
        begun, n, flying = time.perf_counter(), 0, asyncio.Semaphore(IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            while not self.over:
                n += 1
                await asyncio.sleep(max(0.0, begun + n / self.rate - time.perf_counter()))
                if flying.locked():
                    self.skipped += 1  # so many wait that one more says nothing
                    continue
                await flying.acquire()
                group.create_task(self._one(client, flying))

    async def _one(self, client: AsyncClient, flying: asyncio.Semaphore) -> None:
        at = time.perf_counter()
        try:
            await client.trigger("load")
        finally:
            flying.release()
        self.sent.append((at, time.perf_counter() - at))

    def longest_ms(self, begun: float, ended: float) -> float:
        return max(took for at, took in self.sent if begun <= at < ended) * 1000


@dataclass
class Phase:
    """What users saw in one part of the run."""

    submit_ms: float
    start_ms: float
    start_p99_ms: float
    gap_ms: float
    executions: int


Moments = tuple[tuple[float, datetime], tuple[float, datetime]]
"""Begin and end, each by this process's clock and by the database's."""


async def phase(connection: asyncpg.Connection[Any], job: Any, load: Submissions, moments: Moments) -> Phase:
    (begun, begun_at), (ended, ended_at) = moments
    rows = await connection.fetch(LATE, job, begun_at, ended_at)
    late = [float(row["late_ms"]) for row in rows]
    starts = [row["started_s"] for row in rows]
    gaps = [(after - before) * 1000 for before, after in itertools.pairwise(starts)]
    return Phase(load.longest_ms(begun, ended), max(late), quantile(late, 0.99), max(gaps), len(rows))


async def watch_drops(connection: asyncpg.Connection[Any], first_kept: str, times: dict[str, list[float]]) -> None:
    """Note when the oldest partitions begin to go, and when the last has gone."""
    before = dict(await connection.fetchrow(DROPPED, first_kept) or {})
    while True:
        now = dict(await connection.fetchrow(DROPPED, first_kept) or {})
        for name, left in now.items():
            if left < before[name]:
                times[name].append(time.perf_counter())
        before = now
        await asyncio.sleep(0.02)


async def prune(target: Machine) -> float:
    """Run the command as an operator does; return how long it took."""
    begun = time.perf_counter()
    kept = ("--keep-history", f"{KEPT_DAYS}d", "--keep-output", f"{KEPT_DAYS}d")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mainspring.cli.main", "db", "prune", *kept),
        env={**os.environ, "MAINSPRING_DATABASE_URL": target.postgres.dsn},
    )
    if await process.wait():
        raise RuntimeError("db prune failed")
    return time.perf_counter() - begun


@contextlib.asynccontextmanager
async def loaded(target: Machine, rate: float) -> AsyncIterator[tuple[Submissions, Any]]:
    """Processes that submit, start and settle."""
    target.serve("api")
    await target.until_ready()
    target.work("--queue", QUEUE, slots=64)
    async with target.client() as client:
        made = await client.create_job(JobSpec(name="load", task=NoopTask(), queue=QUEUE, overlap="allow"))
        load = Submissions(rate)
        running = asyncio.create_task(load.run(client))
        try:
            yield load, made.job_id
        finally:
            load.over = True
            await running


async def measure(target: Machine, rate: float) -> dict[str, Any]:
    connection = await asyncpg.connect(target.postgres.dsn, server_settings=connection_settings())
    watcher = await asyncpg.connect(target.postgres.dsn, server_settings=connection_settings())
    times: dict[str, list[float]] = {"history": [], "output": []}
    try:
        edge = await connection.fetchval(EDGE, KEPT_DAYS)
        rows = await connection.fetchval(
            "SELECT sum(reltuples)::bigint FROM pg_class WHERE relkind = 'r' AND relname ~ '^history_2'"
        )
        async with loaded(target, rate) as (load, job):
            await asyncio.sleep(2.0)  # connections open
            moments = [(time.perf_counter(), await connection.fetchval("SELECT clock_timestamp()"))]
            await asyncio.sleep(BEFORE_S)
            moments.append((time.perf_counter(), await connection.fetchval("SELECT clock_timestamp()")))
            watching = asyncio.create_task(watch_drops(watcher, f"{edge:%Y%m%d}", times))
            took = await prune(target)
            await asyncio.sleep(AFTER_S)
            watching.cancel()
            moments.append((time.perf_counter(), await connection.fetchval("SELECT clock_timestamp()")))
        while await connection.fetchval(OPEN, job):
            await asyncio.sleep(0.1)
        first, second, third = moments
        before = await phase(connection, job, load, (first, second))
        during = await phase(connection, job, load, (second, third))
        left = await connection.fetchval(BEYOND, edge)
        failed = await connection.fetchval(FAILED, job, first[1])
    finally:
        await connection.close()
        await watcher.close()
    if not times["history"] or left:
        raise RuntimeError(f"{len(times['history'])} drops were seen, {left:,} executions before {edge} are left")
    dropped = [at for each in times.values() for at in each]
    return {
        "rows": int(rows),
        "drop_s": max(dropped) - min(dropped),
        "prune_s": took,
        "before": before,
        "during": during,
        "failed": int(failed) + load.skipped,
    }


def rows_of(found: dict[str, Any], rate: float) -> list[str]:
    before, during = found["before"], found["during"]
    return [
        f"- {found['rows']:,} executions of {DAYS - 1} days, {DAYS - 1 - KEPT_DAYS} days dropped; load:"
        f" {rate:.0f} executions per second, {during.executions:,} during the pruning",
        "",
        "| | before | during | goal |",
        "|---|---|---|---|",
        f"| from the first partition dropped to the last, s | | {found['drop_s']:.2f} | {GOAL_DROP_S:.0f} |",
        f"| `mainspring db prune`, with start and rows that go in batches, s | | {found['prune_s']:.2f} | |",
        f"| longest submission, ms | {before.submit_ms:.0f} | {during.submit_ms:.0f} | {GOAL_PAUSE_MS:,} |",
        f"| longest from due to start, ms | {before.start_ms:.0f} | {during.start_ms:.0f} | {GOAL_PAUSE_MS:,} |",
        f"| from due to start, p99, ms | {before.start_p99_ms:.0f} | {during.start_p99_ms:.0f} | |",
        f"| longest time without a start, ms | {before.gap_ms:.0f} | {during.gap_ms:.0f} | {GOAL_PAUSE_MS:,} |",
        f"| executions that failed or could not be sent | | {found['failed']:,} | 0 |",
        "",
    ]


def figures_of(found: dict[str, Any]) -> dict[str, Any]:
    during = found["during"]
    return {
        "executions": found["rows"],
        "drop_s": round(found["drop_s"], 2),
        "prune_s": round(found["prune_s"], 2),
        "longest_submit_ms": round(during.submit_ms),
        "longest_start_ms": round(during.start_ms),
        "longest_gap_ms": round(during.gap_ms),
        "failed": found["failed"],
    }


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--executions", type=int, default=10_000_000, help="in the history (default: 10,000,000)")
    options.add_argument("--rate", type=float, default=100.0, help="executions per second of the load (default: 100)")
    options.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    found = options.parse_args()
    if not 10_000 <= found.executions <= 1_000_000_000:
        options.error("--executions must be 10000 to 1000000000")
    if not 1 <= found.rate <= 10_000:
        options.error("--rate must be 1 to 10000")
    return found


async def main(options: argparse.Namespace) -> None:
    async with machine(settings={"max_wal_size": "8GB"}, used=True) as target:
        await seed(target.database, Plan(executions=options.executions, jobs=JOBS, days=DAYS))
        found = await measure(target, options.rate)
    lines = rows_of(found, options.rate)
    publish("retention", lines, figures_of(found), written=not options.no_write)


if __name__ == "__main__":
    chosen = arguments()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(chosen))
        sys.exit(0)
    print("interrupted: the processes are stopped and the database is removed", file=sys.stderr)
    os._exit(130)

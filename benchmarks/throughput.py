"""Throughput: executions submitted, claimed, executed and settled by real processes on a durable PostgreSQL.

Also latency from submit to start at a hundred single submissions per second: by the database (`started_at`), and by the
function itself (its clock reading is its result). `--payload 10240` gives each execution params of that many bytes; the
figures are then published under a separate heading.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from harness import Machine, machine, publish, quantile

from mainspring import wire
from mainspring.domain.job import JobSpec, NoopTask, PythonTask

N = int(os.environ.get("BENCH_N", "200000"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "1"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "4000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
LATENCY_N = int(os.environ.get("BENCH_LATENCY_N", "1000"))
RATE = 100.0
_options = argparse.ArgumentParser(description=__doc__)
_options.add_argument("--payload", type=int, default=0, metavar="BYTES", help="of params for each execution")
PAYLOAD = _options.parse_args().payload
PARAMS = {"payload": "x" * PAYLOAD} if PAYLOAD else None
GOALS = ("1,150, a hundred million a day", "1,000") if PAYLOAD else ("24,000, aim 40,000", "22,000")
BATCH = min(1000, 900_000 // (PAYLOAD + 200))  # a request has at most a million bytes
WARM_UP = 300  # submissions that open connections and prepare statements, and are not counted


async def submit_all(target: Machine, job: str) -> float:
    """Return the seconds to submit N executions over HTTP, four batches of up to 1,000 at a time."""
    items = [wire.BatchItem(job=job, params=PARAMS)] * BATCH
    started = time.perf_counter()
    async with target.client() as client:
        gate = asyncio.Semaphore(4)

        async def one(first: int) -> None:
            async with gate:
                answer = await client.submit(items[: N - first])
                assert all(item.status == 201 for item in answer.items)

        await asyncio.gather(*[one(first) for first in range(0, N, BATCH)])
    return time.perf_counter() - started


async def drained(target: Machine, job_id: object, since: datetime) -> float:
    """Wait for all to end; return executions/s from the first start to the last end, in database time."""
    async with target.database.connection() as connection:
        while await connection.fetchval("SELECT count(*) FROM executions") > 0:
            await asyncio.sleep(1)
        row = await connection.fetchrow(
            "SELECT count(*) AS n, extract(epoch FROM max(finished_at) - min(started_at))::float AS s FROM history"
            " WHERE job_id = $1 AND state = 'succeeded' AND fire_at >= $2",
            job_id,
            since,
        )
    assert row["n"] == N, f"{row['n']} of {N} succeeded"
    return float(row["n"] / row["s"])


async def start_latencies(target: Machine, job: str) -> tuple[list[float], list[float]]:
    """Return milliseconds from sending a submission to the start of its execution, and to the start of the function."""
    sent: dict[object, float] = {}
    async with target.client() as client:

        async def one(n: int, begin: float) -> None:
            await asyncio.sleep(max(0.0, begin + n / RATE - time.perf_counter()))
            at = time.time()
            execution = await client.trigger(job, wire.RunNow(params=PARAMS))
            if n >= WARM_UP:
                sent[execution.execution_id] = at

        begin = time.perf_counter() + 0.2
        await asyncio.gather(*[one(n, begin) for n in range(WARM_UP + LATENCY_N)])
        async with target.database.connection() as connection:
            while await connection.fetchval("SELECT count(*) FROM executions") > 0:
                await asyncio.sleep(0.1)
            rows = await connection.fetch(
                "SELECT execution_id, extract(epoch FROM started_at)::float AS at, result FROM history"
                " WHERE execution_id = ANY ($1::uuid[])",
                list(sent),
            )
    started = [(row["at"] - sent[row["execution_id"]]) * 1000 for row in rows]
    return started, [(row["result"] - sent[row["execution_id"]]) * 1000 for row in rows]


async def latencies(target: Machine) -> tuple[list[list[float]], list[list[float]], list[float]]:
    """Return for each round both latencies, and the time of a bare commit meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_starts.py"
        file.write_text("import time\n\ndef now() -> float:\n    return time.time()\n")
        async with target.client() as client:
            await client.create_job(JobSpec(name="now", task=PythonTask("bench_starts:now")))
        target.work("-m", str(file), slots=100)
        await asyncio.sleep(4)
        over = asyncio.Event()
        beside = asyncio.create_task(bare_commits(target, over))
        rounds = [await start_latencies(target, "now") for _ in range(ROUNDS)]
        over.set()
        commits = await beside
        target.stop("worker")
    return [started for started, _ in rounds], [function for _, function in rounds], commits


def middle(rounds: list[list[float]], share: float) -> float:
    """Return the median over the rounds of a quantile."""
    return quantile([quantile(found, share) for found in rounds], 0.5)


async def bare_commits(target: Machine, until: asyncio.Event) -> list[float]:
    """Return milliseconds of one small insert and commit during the submissions: a lower bound for a start."""
    found = []
    async with target.database.connection() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS bench_commits (at timestamptz NOT NULL)")
        while not until.is_set():
            begun = time.perf_counter()
            await connection.execute("INSERT INTO bench_commits VALUES (clock_timestamp())")
            found.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.05)
        await connection.execute("DROP TABLE bench_commits")
    return found


async def one_round(target: Machine, job_id: object) -> tuple[float, float, dict[str, float]]:
    """Return executions drained and submitted per second, and CPU microseconds per execution by role."""
    since = datetime.now(UTC)
    submit_s = await submit_all(target, "noop")
    before = target.cpu_s()
    for n in range(WORKERS):
        target.work(slots=SLOTS, name=f"bench-{n}")
    rate = await drained(target, job_id, since)
    used = {role: (s - before.get(role, 0.0)) / N * 1e6 for role, s in target.cpu_s().items()}
    target.stop("worker")
    return rate, N / submit_s, used


async def main() -> None:
    async with machine(used=True) as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        async with target.client() as client:
            job = await client.create_job(JobSpec(name="noop", task=NoopTask()))
        # Latency first: after the flood, vacuum and checkpoints occupy a core for a while.
        started, functions, commits = await latencies(target)
        rounds = sorted([await one_round(target, job.job_id) for _ in range(ROUNDS)])
    rate, submitted, used = rounds[ROUNDS // 2]
    p50, p99 = middle(started, 0.5), middle(started, 0.99)
    own50, own99 = middle(functions, 0.5), middle(functions, 0.99)
    all_p99 = ", ".join(f"{quantile(found, 0.99):.1f}" for found in started)
    bare50, bare99 = quantile(commits, 0.5), quantile(commits, 0.99)
    cpu = " · ".join(f"{role} {us:.1f}" for role, us in sorted(used.items()))
    all_rates = ", ".join(f"{rate:,.0f}" for rate, *_ in rounds)
    publish(
        f"throughput with {PAYLOAD:,} bytes of params" if PAYLOAD else "throughput",
        [
            f"- {N:,} no-op executions, {WORKERS} worker(s) of {SLOTS} slots, one api process; median of {ROUNDS}",
            "",
            "| | measured | goal |",
            "|---|---|---|",
            f"| drained, executions/s | {rate:,.0f} (of {all_rates}) | {GOALS[0]} |",
            f"| submitted in bulk over HTTP, executions/s | {submitted:,.0f} | {GOALS[1]} |",
            f"| CPU µs per execution while draining | {cpu} | api 20, worker 20, postgresql 25 |",
            f"| submit to start at {RATE:.0f}/s, p50 ms | {p50:.1f} | 3, aim 2 |",
            f"| submit to start at {RATE:.0f}/s, p99 ms | {p99:.1f} (of {all_p99}) | 8, aim 5 |",
            f"| submit to the first line of a function, p50 / p99 ms | {own50:.1f} / {own99:.1f} | |",
            f"| one small insert and its commit at the same time, p50 / p99 ms | {bare50:.1f} / {bare99:.1f} | |",
        ],
        {
            "drain_per_s": round(rate),
            "drain_rounds": [round(rate) for rate, *_ in rounds],
            "submit_per_s": round(submitted),
            "start_p50_ms": round(p50, 2),
            "start_p99_ms": round(p99, 2),
            "start_p99_rounds": [round(quantile(found, 0.99), 2) for found in started],
            "function_p50_ms": round(own50, 2),
            "function_p99_ms": round(own99, 2),
            "commit_p99_ms": round(bare99, 2),
            "cpu_us_per_job": {role: round(us, 1) for role, us in sorted(used.items())},
        },
        command=f"python benchmarks/throughput.py --payload {PAYLOAD}" if PAYLOAD else None,
    )


if __name__ == "__main__":
    asyncio.run(main())

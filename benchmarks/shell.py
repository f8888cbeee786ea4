"""Cost of a shell task: `true` run by a worker from end to end, compared with bare posix_spawn and wait calls."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime

import throughput
from harness import Machine, machine, publish, quantile

from mainspring.domain.job import JobSpec, ShellTask

N = throughput.N = int(os.environ.get("BENCH_N", "3000"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "64"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PROGRAM = "/bin/true"


def bare() -> float:
    """Return programs per second, one after the other, with only the two system calls."""
    begin = time.perf_counter()
    for _ in range(N):
        os.waitpid(os.posix_spawn(PROGRAM, [PROGRAM], os.environ), 0)
    return N / (time.perf_counter() - begin)


async def drained(target: Machine, job_id: object) -> float:
    since = datetime.now(UTC)
    await throughput.submit_all(target, "true")
    target.work(slots=SLOTS)
    rate = await throughput.drained(target, job_id, since)
    target.stop("worker")
    return rate


async def main() -> None:
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        async with target.client() as client:
            job = await client.create_job(JobSpec(name="true", task=ShellTask(argv=(PROGRAM,))))
        pairs = [(bare(), await drained(target, job.job_id)) for _ in range(ROUNDS)]
    spawned, run = (quantile([pair[n] for pair in pairs], 0.5) for n in (0, 1))
    share = quantile([ours / theirs for theirs, ours in pairs], 0.5)
    publish(
        "shell",
        [
            f"- {N:,} times `true`, one worker of {SLOTS} slots, one api process; medians of {ROUNDS} rounds, in turn",
            "",
            "| | measured | goal |",
            "|---|---|---|",
            f"| bare posix_spawn and wait, one after the other, programs/s | {spawned:,.0f} | |",
            f"| through api, worker and PostgreSQL, executions/s | {run:,.0f} | |",
            f"| share | {share:.0%} | 60 % |",
        ],
        {"bare_per_s": round(spawned), "shell_per_s": round(run), "shell_share": round(share, 2)},
    )


if __name__ == "__main__":
    asyncio.run(main())

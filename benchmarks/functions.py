"""Cost of Python functions: no-op functions through api, worker and runners, compared with no-op tasks."""

from __future__ import annotations

import asyncio
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import throughput
from harness import Machine, machine, processor_s, publish

from mainspring.domain.job import JobSpec, NoopTask, PythonTask, Task
from mainspring.worker.executors import load_executors

N = throughput.N = int(os.environ.get("BENCH_N", "100000"))
SLOTS = throughput.SLOTS
SOURCE = "def nothing() -> None: ...\n"


async def measured(target: Machine, name: str, task: Task, *options: str) -> tuple[float, float, float]:
    """Return executions per second, and CPU µs per execution of the worker and of its runners."""
    async with target.client() as client:
        job = await client.create_job(JobSpec(name=name, task=task))
    since = datetime.now(UTC)
    await throughput.submit_all(target, name)
    target.work(*options, slots=SLOTS)
    (worker,) = target.processes["worker"]
    async with target.client() as client:
        while not any(w.state in ("idle", "busy") for w in (await client.workers()).items):
            await asyncio.sleep(0.01)
    own_before, family_before = processor_s(worker.pid)
    rate = await throughput.drained(target, job.job_id, since)
    own, family = processor_s(worker.pid)
    own, family = own - own_before, family - family_before
    target.stop("worker")
    return rate, own / N * 1e6, (family - own) / N * 1e6


async def main() -> None:
    assert "python" in load_executors()
    async with machine(used=True) as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench_functions.py"
            file.write_text(SOURCE)
            noop = await measured(target, "noop", NoopTask())
            python = await measured(target, "python", PythonTask("bench_functions:nothing"), "-m", str(file))
    rows = [
        f"| {name} | {rate:,.0f} | {own:.1f} | {runners:.1f} |"
        for name, (rate, own, runners) in (("noop task", noop), ("python task, empty function", python))
    ]
    publish(
        "functions",
        [
            f"- {N:,} executions each, one worker of {SLOTS} slots, from the moment it is registered",
            "",
            "| | drained, executions/s | worker, CPU µs each | runners, CPU µs each |",
            "|---|---|---|---|",
            *rows,
        ],
        {
            "noop": [round(value, 1) for value in noop],
            "python": [round(value, 1) for value in python],
        },
    )


if __name__ == "__main__":
    asyncio.run(main())

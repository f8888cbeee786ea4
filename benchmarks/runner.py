"""Cost of the hop from worker to runner and back, without api and database: deep queues, and one call at a time."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import uvloop
from harness import processor_s, publish, quantile

from mainspring import wire
from mainspring.domain.job import Definition, PythonTask
from mainspring.domain.retry import RetryPolicy
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.executors.python import PythonExecutor

N = int(os.environ.get("BENCH_N", "200000"))
LONE = int(os.environ.get("BENCH_LONE", "3000"))
WINDOW = int(os.environ.get("BENCH_WINDOW", "4000"))
PAUSE_S = 0.002
SLOTS = 100
SOURCE = """\
import time

def nothing() -> None: ...

def now() -> int:
    return time.monotonic_ns()
"""


class Registry:
    """A cleanup registry without a guardian."""

    def add_process_group(self, group: int) -> None: ...
    def remove_process_group(self, group: int) -> None: ...
    def add_cgroup(self, procs_file: str) -> None: ...
    def remove_cgroup(self, procs_file: str) -> None: ...
    def add_folder(self, path: str) -> None: ...
    def add_engine(self, path: str) -> None: ...


def maker(function: str, cleanup: CleanupRegistry) -> Callable[[], Work]:
    definition = Definition(
        name="bench",
        task=PythonTask(f"bench_runner:{function}"),
        timeout_s=60,
        retries=RetryPolicy(),
        delivery="at_least_once",
    )
    session_id, job_id, fire_at = uuid4(), uuid4(), datetime.now(UTC)

    def make() -> Work:
        given = wire.Assignment(
            execution_id=uuid4(), attempt=1, definition="d", job_id=job_id, fire_at=fire_at, params=None
        )
        return Work(given, definition, session_id=session_id, cleanup=cleanup)

    return make


def runners_s(executor: PythonExecutor) -> float:
    return sum(processor_s(pid)[0] for pid in executor.processes)


async def deep(executor: PythonExecutor, works: list[Work]) -> tuple[float, float, float]:
    """Return calls per second with up to `WINDOW` waiting, and CPU µs per call of the worker and of its runners."""
    left, open_calls = len(works), 0
    finished = asyncio.Event()

    def finish(_: Work, done: Done) -> None:
        nonlocal left, open_calls
        assert done.outcome == "succeeded", done
        left, open_calls = left - 1, open_calls - 1
        finished.set()

    before, own, began = runners_s(executor), time.process_time(), time.perf_counter()
    for first in range(0, len(works), 64):
        for work in works[first : first + 64]:
            open_calls += 1
            executor.begin(work, finish)
        await asyncio.sleep(0)
        while open_calls > WINDOW:
            finished.clear()
            await finished.wait()
    while left:
        finished.clear()
        await finished.wait()
    took, own = time.perf_counter() - began, time.process_time() - own
    return N / took, own / N * 1e6, (runners_s(executor) - before) / N * 1e6


async def lone(executor: PythonExecutor, works: list[Work]) -> tuple[list[float], list[float], float, float]:
    """Return µs from `begin` to the function's first line and to its answer, and CPU µs of worker and runners."""
    starts, answers = [], []
    before, own, idle = runners_s(executor), time.process_time(), 0.0
    for work in works:
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        began = time.monotonic_ns()

        def finish(_: Work, done: Done, ended: asyncio.Future[int] = ended) -> None:
            ended.set_result(msgspec.json.decode(done.result))

        executor.begin(work, finish)
        line = await ended
        answers.append((time.monotonic_ns() - began) / 1e3)
        starts.append((line - began) / 1e3)
        await asyncio.sleep(PAUSE_S)
    own = time.process_time() - own
    runners = runners_s(executor) - before
    at = time.process_time()
    for _ in works:  # what the pauses of this loop cost by themselves
        await asyncio.sleep(PAUSE_S)
    idle = time.process_time() - at
    return starts, answers, (own - idle) / len(works) * 1e6, runners / len(works) * 1e6


async def main() -> None:
    cleanup, executor = Registry(), PythonExecutor()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_runner.py"
        file.write_text(SOURCE)
        await executor.start(Host(SLOTS, cleanup, (str(file),)))
        while len(executor.processes) < 2:
            await asyncio.sleep(0.01)
        make, make_now = maker("nothing", cleanup), maker("now", cleanup)
        await deep(executor, [make() for _ in range(20_000)])
        rate, worker_us, runners_us = await deep(executor, [make() for _ in range(N)])
        await lone(executor, [make_now() for _ in range(200)])
        starts, answers, lone_worker_us, lone_runner_us = await lone(executor, [make_now() for _ in range(LONE)])
        await executor.stop()
    p50, p99 = quantile(starts, 0.5), quantile(starts, 0.99)
    back50, back99 = quantile(answers, 0.5), quantile(answers, 0.99)
    publish(
        "runner",
        [
            f"- {N:,} calls of an empty function, up to {WINDOW:,} at once, and {LONE:,} calls one at a time",
            "",
            "| | calls/s | worker, CPU µs each | runners, CPU µs each |",
            "|---|---|---|---|",
            f"| many at once | {rate:,.0f} | {worker_us:.1f} | {runners_us:.1f} |",
            f"| one at a time, {PAUSE_S * 1e3:g} ms apart | | {lone_worker_us:.0f} | {lone_runner_us:.0f} |",
            "",
            "| one at a time, µs from the worker's call | p50 | p99 |",
            "|---|---|---|",
            f"| to the function's first line | {p50:.0f} | {p99:.0f} |",
            f"| to its result in the worker | {back50:.0f} | {back99:.0f} |",
        ],
        {
            "deep": [round(rate), round(worker_us, 2), round(runners_us, 2)],
            "lone": [round(x) for x in (p50, p99, back50, back99, lone_worker_us, lone_runner_us)],
        },
    )


if __name__ == "__main__":
    uvloop.run(main())

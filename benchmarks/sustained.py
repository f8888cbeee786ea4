"""Sustained load: jobs on schedules at a steady rate for ten minutes, with history, retention and alerts on.

Two parts: 600 executions per second with 1 KB of output each (50 million a day), and 1,150 per second without output
(100 million a day). Each reports what grows: live tables, dead rows, memory, lateness; and the last minute compared
with the first. Resources are given per million executions. Ctrl-C ends it, and removes its database.

    python benchmarks/sustained.py                            # both parts, ten minutes each
    python benchmarks/sustained.py --minutes 2 --rate 300 --output 1024 --no-write

It ends early, with what was measured, if a process ends or executions pile up for more than a minute of the load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import firing
from harness import (
    Machine,
    machine,
    memory_of_anonymous_pages,
    publish,
    quantile,
    resident_by_process,
    resident_of_family,
)

from mainspring.domain.job import NoopTask, PythonTask, Task
from mainspring.store.db import Connection

MAX_MINUTES = 24 * 60
EVERY_MS = 10_000
PHASES = 1_000
"""Each job is due every ten seconds, at one of a thousand instants."""
SAMPLE_S = 5.0
WARM_UP_S = 20.0
"""Not counted: connections open, statements are prepared, memory is allocated for the first time."""
ROLES = ("api", "scheduler", "worker", "runner")
"""`runner` is the largest process that the worker has started. It starts more of them while many functions run at once,
such as after a pause of the machine: their number is not growth, and is shown apart."""
PROCESSES = ("api", "scheduler", "worker")
DRAIN_S = 120.0
"""How long executions that were due in time may take to end, before they count as failed."""
GOAL_LATENESS_MS = 100
GOAL_LAST_TO_FIRST = 0.97
GOAL_RSS_GROWTH_MB = 16
SOURCE = "def say() -> None:\n    print({text!r})\n"

SIZES = """
SELECT pg_total_relation_size('executions') AS live, pg_database_size(current_database()) AS whole,
       pg_current_wal_lsn() - '0/0'::pg_lsn AS wal,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = 'mainspring'::regnamespace
          AND c.relname !~ '^(history|log_chunks)_') AS others,
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'executions') AS dead,
       (SELECT count(*) FROM executions WHERE state IN ('queued', 'running')) AS open"""
MINUTES = """
SELECT floor(extract(epoch FROM due_at - $1) / 60)::int AS minute, count(*) AS n,
       count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - due_at) * 1000)
           FILTER (WHERE started_at IS NOT NULL) AS late
FROM history WHERE due_at >= $1 AND due_at < $2 AND finished_at >= $1 GROUP BY minute ORDER BY minute"""
FINISHED = """
SELECT floor(extract(epoch FROM finished_at - $1) / 60)::int AS minute, count(*) AS n
FROM history WHERE finished_at >= $1 AND finished_at < $2 GROUP BY minute ORDER BY minute"""


@dataclass(frozen=True)
class Sample:
    """What the system holds at one time; sizes in bytes, memory in MB."""

    at: float
    live: int
    others: int
    whole: int
    wal: int
    dead: int
    open: int
    rss: dict[str, float]
    runners: int

    @property
    def rss_mb(self) -> float:
        """Memory of Mainspring's own processes."""
        return sum(self.rss[role] for role in ROLES)


@dataclass
class Part:
    """One rate for some minutes, and what was measured."""

    rate: int
    output: int
    minutes: int
    samples: list[Sample] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)
    failed: int = 0
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def is_stuck(self) -> bool:
        """Whether more than a minute of the load waits: the rate is not sustained."""
        return self.samples[-1].open > 60 * self.rate

    @property
    def name(self) -> str:
        return f"{self.rate:,}/s, {self.output:,} bytes of output" if self.output else f"{self.rate:,}/s, no output"

    @property
    def executions(self) -> int:
        return sum(self.done)

    @property
    def per_s(self) -> float:
        return self.executions / (60 * self.minutes)

    @property
    def last_to_first(self) -> float:
        return self.done[-1] / self.done[0]

    def growth(self, name: str) -> float:
        """Median of the last minute less that of the first, so that one vacuum or one allocation does not decide."""
        per_minute = max(1, round(60 / SAMPLE_S))
        values = [float(getattr(sample, name)) for sample in self.samples]
        return quantile(values[-per_minute:], 0.5) - quantile(values[:per_minute], 0.5)

    def growth_of_roles(self) -> str:
        """Growth of memory by role, in MB: which process leaks, if one does."""
        per_minute = max(1, round(60 / SAMPLE_S))
        grown = []
        for role in (*ROLES, "postgresql"):
            values = [sample.rss[role] for sample in self.samples]
            grown.append(f"{role} {quantile(values[-per_minute:], 0.5) - quantile(values[:per_minute], 0.5):.1f}")
        return " · ".join(grown)

    def per_million(self, name: str) -> float:
        first, last = self.samples[0], self.samples[-1]
        return float(getattr(last, name) - getattr(first, name)) / self.executions * 1e6


async def sample(target: Machine, connection: Connection) -> Sample:
    sizes = await connection.fetchrow(SIZES)
    rss = {role: resident_of_family(target.processes[role]) for role in ("api", "scheduler")}
    rss["worker"], *runners = resident_by_process(target.processes["worker"][0].pid)
    rss["runner"] = max(runners, default=0.0)
    rss["postgresql"] = memory_of_anonymous_pages(target.postgres.pid or 0)
    return Sample(
        time.monotonic(), **{name: int(value) for name, value in sizes.items()}, rss=rss, runners=len(runners)
    )


async def measure(target: Machine, part: Part) -> None:
    """Start the processes, let the load run for the minutes of the part, and read what happened from the history."""
    target.serve("api")
    await target.until_ready()
    with tempfile.TemporaryDirectory() as folder:
        task: Task = NoopTask()
        options: list[str] = []
        if part.output:
            file = Path(folder) / "bench_output.py"
            file.write_text(SOURCE.format(text="x" * (part.output - 1)))
            task, options = PythonTask("bench_output:say"), ["-m", str(file)]
        target.work(*options, slots=200)
        keys = [firing.every_key(EVERY_MS, n * EVERY_MS // PHASES) for n in range(PHASES)]
        await firing.seed(target, keys, jobs=part.rate * EVERY_MS // 1000, prefix="s-", task=task)
        target.serve("scheduler")  # last: the seeded jobs are not announced to a running one
        await firing.until_owned(target)
        async with target.database.connection() as connection:
            await asyncio.sleep(WARM_UP_S)
            began = await connection.fetchval("SELECT clock_timestamp()")
            before = target.cpu_s()
            await watch(target, connection, part)
            part.cpu = {role: s - before.get(role, 0.0) for role, s in target.cpu_s().items()}
            ended = await connection.fetchval("SELECT $1::timestamptz + make_interval(mins => $2)", began, part.minutes)
            await read_history(connection, part, began, ended)
        for role in reversed(PROCESSES):
            target.stop(role)
    await firing.clear(target)


async def watch(target: Machine, connection: Connection, part: Part) -> None:
    """Take samples until the minutes are over; print one line for each minute."""
    begun = time.monotonic()
    end = begun + 60 * part.minutes
    part.samples.append(await sample(target, connection))
    n = 0
    while (now := time.monotonic()) < end:
        n += 1
        await asyncio.sleep(max(0.0, min(begun + n * SAMPLE_S, end) - now))
        demand_running(target)
        part.samples.append(await sample(target, connection))
        if part.is_stuck:
            raise RuntimeError(
                f"{part.samples[-1].open:,} executions wait: {part.name} is more than this machine can do"
            )
        if part.samples[-1].at - begun >= 60 * (n * SAMPLE_S // 60) > 0 and n % round(60 / SAMPLE_S) == 0:
            show(part, round(n * SAMPLE_S / 60))


def demand_running(target: Machine) -> None:
    """Fail as soon as a process has ended: what is measured after that is worth nothing."""
    for role, group in target.processes.items():
        if any(process.poll() is not None for process in group):
            raise RuntimeError(f"the {role} has ended; its output is above")


def show(part: Part, minute: int) -> None:
    now = part.samples[-1]
    memory = " ".join(f"{role} {mb:.0f}" for role, mb in now.rss.items())
    print(
        f"{part.name}: minute {minute} of {part.minutes}: {now.open} open, live table {now.live / 2**20:.1f} MB,"
        f" {now.dead:,} dead rows, other tables {now.others / 2**20:.1f} MB, memory in MB: {memory}",
        flush=True,
    )


async def read_history(connection: Connection, part: Part, began: datetime, ended: datetime) -> None:
    deadline, left = time.monotonic() + DRAIN_S, 1
    while left and time.monotonic() < deadline:
        left = await connection.fetchval("SELECT count(*) FROM executions WHERE due_at < $1", ended)
        await asyncio.sleep(0.1)
    finished = await connection.fetch(FINISHED, began, ended, timeout=600)
    part.done = [row["n"] for row in finished]
    due = await connection.fetch(MINUTES, began, ended, timeout=600)
    part.late = [(row["late"][0], row["late"][1]) for row in due]
    if len(part.done) < part.minutes or not due:
        raise RuntimeError(f"{len(part.done)} of {part.minutes} minutes have executions: see the log of the processes")
    part.failed = left + sum(row["n"] - row["succeeded"] for row in due)


def rows(part: Part) -> list[str]:
    """The table of one part."""
    p50, p99 = quantile([late[0] for late in part.late], 0.5), max(late[1] for late in part.late)
    cpu = " · ".join(f"{role} {s / part.executions * 1e6:.0f}" for role, s in sorted(part.cpu.items()))
    memory = " · ".join(f"{role} {mb:.0f}" for role, mb in part.samples[-1].rss.items())
    runners = [sample.runners for sample in part.samples]
    live, dead = max(s.live for s in part.samples), max(s.dead for s in part.samples)
    mb = 2**20
    return [
        f"### {part.name}, {part.minutes} min",
        "",
        "| | measured | goal |",
        "|---|---|---|",
        f"| executions per second | {part.per_s:,.1f} | {part.rate:,} |",
        f"| executions that did not succeed | {part.failed:,} | 0 |",
        f"| last minute / first minute | {part.last_to_first:.4f} | {GOAL_LAST_TO_FIRST} |",
        f"| due to start, p50, ms | {p50:.1f} | |",
        f"| due to start, p99 of the worst minute, ms | {p99:.1f} | {GOAL_LATENESS_MS} |",
        f"| due to start, p99 of the first / last minute, ms | {part.late[0][1]:.1f} / {part.late[-1][1]:.1f} | |",
        f"| growth of memory (api, scheduler, worker, largest runner), MB | {part.growth('rss_mb'):.1f}"
        f" | {GOAL_RSS_GROWTH_MB} |",
        f"| growth of memory by role, MB | {part.growth_of_roles()} | |",
        f"| memory at the end, MB | {memory} | |",
        f"| processes of the worker, first / most / last | {runners[0]} / {max(runners)} / {runners[-1]} | |",
        f"| live table: growth / largest, MB | {part.growth('live') / mb:.1f} / {live / mb:.1f} | 0 |",
        f"| dead rows of the live table, most | {dead:,} | |",
        f"| growth of tables other than history and output, MB | {part.growth('others') / mb:.1f} | 0 |",
        f"| CPU s per million | {cpu} | |",
        f"| WAL per million, MB | {part.per_million('wal') / mb:,.0f} | |",
        f"| disk per million, MB | {part.per_million('whole') / mb:,.0f} | |",
        "",
    ]


def figures_of(parts: list[Part]) -> dict[str, Any]:
    """The figures of the last part that ran, and the worst of both where lower or higher is worse."""
    return {
        "rate_per_s": round(parts[-1].per_s, 1),
        "last_to_first": round(min(part.last_to_first for part in parts), 4),
        "lateness_p99_ms": round(max(late[1] for part in parts for late in part.late), 1),
        "rss_growth_mb": round(max(part.growth("rss_mb") for part in parts), 1),
        "failed": sum(part.failed for part in parts),
        "cpu_s_per_million": round(sum(parts[-1].cpu.values()) / parts[-1].executions * 1e6),
        "wal_mb_per_million": round(parts[-1].per_million("wal") / 2**20),
        "disk_mb_per_million": round(parts[-1].per_million("whole") / 2**20),
    }


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=int, default=10, help="of each part (default: 10)")
    options.add_argument("--rate", type=int, help="executions per second: one part at this rate instead of both")
    options.add_argument("--output", type=int, default=0, metavar="BYTES", help="of each execution, with --rate")
    options.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    found = options.parse_args()
    if not 1 <= found.minutes <= MAX_MINUTES:
        options.error(f"--minutes must be 1 to {MAX_MINUTES}")
    if found.rate is not None and not 1 <= found.rate <= 100_000:
        options.error("--rate must be 1 to 100000")
    if not 0 <= found.output <= 1_000_000:
        options.error("--output must be 0 to 1000000")
    return found


async def main(options: argparse.Namespace) -> None:
    if options.rate is not None:
        parts = [Part(options.rate, options.output, options.minutes)]
    else:
        parts = [Part(600, 1024, options.minutes), Part(1_150, 0, options.minutes)]
    lines = [f"- jobs due every {EVERY_MS // 1000} s at {PHASES:,} instants; history, retention and alerts on", ""]
    for part in parts:
        async with machine(used=True) as target:
            await measure(target, part)
        lines += rows(part)
        print("\n".join(rows(part)), flush=True)  # here too: the next part may fail
    publish("sustained", lines, figures_of(parts), written=not options.no_write)


if __name__ == "__main__":
    chosen = arguments()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(chosen))
        sys.exit(0)
    print("interrupted: the processes are stopped and the database is removed", file=sys.stderr)
    os._exit(130)

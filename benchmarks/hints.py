"""Submissions of 32 concurrent clients: the hint inside their transaction, after its commit, or none."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median
from uuid import UUID

import uvloop
from harness import Machine, machine, publish, quantile

from mainspring.domain.execution import new_id_suffixes
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import executions
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from mainspring.store.queries import q

CLIENTS = 32
ROUNDS = 7
ROUND_S = float(os.environ.get("BENCH_S", "3"))
TENANT = 1

Submit = Callable[[Database, UUID], Awaitable[object]]


def columns(job_id: UUID) -> executions.SubmissionColumns:
    """One submission, due now."""
    none = [None]
    return executions.SubmissionColumns(
        new_id_suffixes(1), [TENANT], [job_id], none, ["bench"], none, none, none, none, none, none
    )


def inside() -> str:
    """The same statement with a NOTIFY in its transaction."""
    notify = "pg_notify('mainspring_queued', line_id || ' ' || rank)"
    return f"WITH fresh AS ({q('submit')}) SELECT fresh.*, {notify} FROM fresh"


async def without_hint(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await connection.fetch(q("submit"), *columns(job_id).arguments())


async def hint_inside(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await connection.fetch(inside(), *columns(job_id).arguments())


async def hint_after(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await executions.submit(connection, columns(job_id))


CASES: dict[str, Submit] = {
    "no hint": without_hint,
    "hint inside the transaction": hint_inside,
    "hint after the commit": hint_after,
}


async def measure(database: Database, job_id: UUID, submit: Submit, seconds: float) -> tuple[float, float]:
    """Return commits per second, and the 99th percentile of one in ms."""
    took: list[float] = []
    began = time.perf_counter()

    async def client() -> None:
        while (start := time.perf_counter()) - began < seconds:
            await submit(database, job_id)
            took.append((time.perf_counter() - start) * 1000)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return len(took) / (time.perf_counter() - began), quantile(took, 0.99)


async def listening(target: Machine) -> tuple[Database, PostgresBus]:
    """Another process that hears the hints."""
    database = Database(target.postgres.dsn, size=1)
    await database.open()
    bus = PostgresBus(database)
    bus.subscribe("mainspring_queued", lambda _: None, on_gap=lambda: None)
    await bus.start()
    await bus.ready()
    return database, bus


async def main() -> None:
    found: dict[str, list[tuple[float, float]]] = {title: [] for title in CASES}
    async with machine(used=True) as target, Database(target.postgres.dsn, size=CLIENTS) as database:
        job_id = await jobs.create(target.database, JobSpec(name="j", task=NoopTask()), tenant=TENANT, by="bench")
        bus = PostgresBus(database)
        await bus.start()
        await bus.ready()
        other, heard = await listening(target)
        for submit in CASES.values():  # warm-up: connections and plans
            await measure(database, job_id, submit, 0.5)
        for _ in range(ROUNDS):
            for title, submit in CASES.items():
                found[title].append(await measure(database, job_id, submit, ROUND_S))
        await heard.stop()
        await other.close()
        await bus.stop()
    rates = {title: [rate for rate, _ in rounds] for title, rounds in found.items()}
    p99 = {title: median(ms for _, ms in rounds) for title, rounds in found.items()}
    publish(
        "hints",
        [
            f"- {CLIENTS} clients insert executions one by one, {ROUNDS} interleaved rounds of {ROUND_S:g} s",
            "- one process with all clients, a second one that listens; the rows were measured by turns",
            "",
            "| | commits per second, median (lowest-highest) | p99 of a commit, ms |",
            "|---|---|---|",
            *(
                f"| {title} | {median(r):,.0f} ({min(r):,.0f}-{max(r):,.0f}) | {p99[title]:.1f} |"
                for title, r in rates.items()
            ),
        ],
        {title: {"per_s": round(median(r)), "p99_ms": round(p99[title], 1)} for title, r in rates.items()},
    )


if __name__ == "__main__":
    uvloop.run(main())

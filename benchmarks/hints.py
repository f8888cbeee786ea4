"""Submissions of 32 concurrent clients: the hint inside their transaction, after its commit, or none."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median
from uuid import UUID, uuid4

import uvloop
from harness import Machine, machine, publish, quantile

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import executions
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Connection, Database
from mainspring.store.queries import q

CLIENTS = 32
ROUNDS = 7
ROUND_S = float(os.environ.get("BENCH_S", "3"))
TENANT = 1

Submit = Callable[[Database, UUID], Awaitable[object]]


def inside() -> str:
    """The same statement with a NOTIFY in its transaction."""
    notify = "pg_notify('mainspring_queued', line_id || ' ' || rank)"
    return f"WITH fresh AS ({q('insert_one')}) SELECT fresh.*, {notify} FROM fresh"


async def raw(connection: Connection, statement: str, job_id: UUID) -> object:
    key = f"manual:{uuid4()}"
    return await connection.fetchrow(statement, TENANT, job_id, key, None, "bench", None, None, None, None)


async def without_hint(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await raw(connection, q("insert_one"), job_id)


async def hint_inside(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await raw(connection, inside(), job_id)


async def hint_after(database: Database, job_id: UUID) -> object:
    async with database.connection() as connection:
        return await executions.insert_one(
            connection,
            tenant=TENANT,
            job_id=job_id,
            trigger_key=f"manual:{uuid4()}",
            params=None,
            created_by="bench",
            fire_at=None,
            session_id=None,
            line_id=None,
        )


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
            "- one process with all clients, a second one that listens",
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

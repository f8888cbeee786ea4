"""Settling directly against PostgreSQL: successes, failures that are retried, final failures."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from uuid import UUID, uuid4

from harness import Machine, machine, publish

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import jobs
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.store import sessions
from mainspring.store.definitions import Definitions

N = int(os.environ.get("BENCH_N", "100000"))
BATCH = 500
PARALLEL = 8
TENANT = 1
RUNNING = """
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, attempt, state, trigger, queue, rank,
                        fire_at, due_at, queued_at, started_at, session_id, line_id)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM now()) * 1000)::bigint + n), 12, '0'), job_id, n::text),
       job_id, 1, 1, shard, 5, 1, 'running', 'manual', queue, n, db_now(), db_now(), db_now(), db_now(), $2, line_id
FROM jobs, generate_series(1, $3) AS n WHERE job_id = $1
RETURNING execution_id
"""
CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "successes": ("succeeded", {}, N, "40,000"),
    "failures that are retried": ("failed", {"exit_code": 3, "error": "exit code 3"}, N // 4, "5,000"),
    "final failures, with dead letters": ("failed", {"exit_code": 3, "error": "exit code 3"}, N // 4, ""),
}


class Silence:
    """A bus without subscribers: notifications are not measured."""

    def subscribe(self, *_: Any, **__: Any) -> None: ...
    def publish(self, *_: Any, **__: Any) -> None: ...


async def session(target: Machine) -> UUID:
    session_id = uuid4()
    register = wire.Register(name="bench", host="h", version="1", slots=1000, queues=["short"], kinds=["noop"])
    async with target.database.connection() as connection:
        await sessions.insert_session(
            connection, tenant=TENANT, session_id=session_id, worker_id=uuid4(), lease_s=86_400, register=register
        )
    return session_id


async def measure(target: Machine, outcome: Any, more: dict[str, Any], count: int, retries: int) -> tuple[float, float]:
    """Return results settled per second, and PostgreSQL's CPU microseconds for each."""
    spec = JobSpec(name=f"j-{uuid4()}", task=NoopTask(), retries=RetryPolicy(max=retries))
    job_id = await jobs.create(target.database, spec, tenant=TENANT, by="bench")
    session_id = await session(target)
    async with target.database.connection() as connection:
        running = [r["execution_id"] for r in await connection.fetch(RUNNING, job_id, session_id, count)]
        await connection.execute("VACUUM ANALYZE executions")
    settler = Settler(target.database, Definitions(target.database), Announcer(Silence()))
    batches = [
        [AttemptResult(execution, 1, session_id, outcome, 5, **more) for execution in running[n : n + BATCH]]
        for n in range(0, count, BATCH)
    ]
    gate = asyncio.Semaphore(PARALLEL)

    async def settle(batch: list[AttemptResult]) -> None:
        async with gate:
            assert not await settler.settle(Report(session_id, batch))

    before, began = target.cpu_s()["postgresql"], time.perf_counter()
    await asyncio.gather(*map(settle, batches))
    took = time.perf_counter() - began
    return count / took, (target.cpu_s()["postgresql"] - before) / count * 1e6


async def main() -> None:
    found: dict[str, tuple[float, float]] = {}
    async with machine() as target:
        await measure(target, "succeeded", {}, 2_000, 3)  # warm-up: plans and pages are cached
        for title, (outcome, more, count, _) in CASES.items():
            found[title] = await measure(target, outcome, more, count, 0 if "final" in title else 3)
    publish(
        "settle",
        [
            f"- {N:,} running executions (a quarter of that for failures), reports of {BATCH}, one process, no HTTP",
            "",
            "| | per second | postgresql CPU µs each | goal per second |",
            "|---|---|---|---|",
            *(f"| {t} | {rate:,.0f} | {us:.1f} | {CASES[t][3]} |" for t, (rate, us) in found.items()),
        ],
        {title: {"per_s": round(rate), "postgresql_us": round(us, 1)} for title, (rate, us) in found.items()},
    )


if __name__ == "__main__":
    asyncio.run(main())

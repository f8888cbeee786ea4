"""Time to fire one instant: a thousand jobs, and ten thousand, on a durable PostgreSQL.

One scheduler in this process does everything a tick does: lock the shards, decide, insert, notify, move the watermark,
commit. The goal of 4 ms for a thousand is that of an append-only log.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from firing import clear, every_key, seed
from harness import Machine, machine, publish, quantile

from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database

SECONDS = int(os.environ.get("BENCH_SECONDS", "30"))
BATCH = 1000


class Silence:
    def subscribe(self, *_: Any, **__: Any) -> None: ...
    def publish(self, *_: Any, **__: Any) -> None: ...


async def batches(target: Machine, jobs: int, seconds: int = SECONDS) -> list[float]:
    """Return milliseconds for each instant; all jobs are due once a second."""
    await seed(target, [every_key(1000, 0)], jobs=jobs, prefix="pub-", overlap="allow")
    found: list[float] = []
    async with target.database.connection() as connection:  # no wait for the lease of the previous scheduler
        await connection.execute("UPDATE shards SET owner = NULL, lease_expires_at = NULL, epoch = epoch + 1")
        await connection.execute("DELETE FROM schedulers")
    async with Database(target.postgres.dsn) as database:
        scheduler = Scheduler(database, Silence(), lease_s=30)
        await scheduler.lease()
        await scheduler.decide()
        for _ in range(seconds):
            now = time.time()
            await asyncio.sleep(1.005 - now % 1)
            await scheduler.lease()
            begun = time.perf_counter()
            await scheduler.decide()
            found.append((time.perf_counter() - begun) * 1000)
        async with database.connection() as connection:
            made = await connection.fetchval("SELECT count(*) FROM executions")
    assert made >= jobs * (seconds - 1), f"{made:,} executions"
    await clear(target)
    return found[2:]  # the first ones prepare their statements


async def main() -> None:
    async with machine() as target:
        one = await batches(target, BATCH)
        ten = [ms / 10 for ms in await batches(target, 10 * BATCH)]
    rows = [
        f"| {name} | {quantile(found, 0.5):.1f} | {quantile(found, 0.99):.1f} | 4 |"
        for name, found in (("1,000 due at once", one), ("10,000 due at once, for each 1,000 of them", ten))
    ]
    publish(
        "publication",
        [
            f"- jobs on one schedule that fires every second, {SECONDS} s; from due to committed, ms",
            "",
            "| | p50 | p99 | goal |",
            "|---|---|---|---|",
            *rows,
        ],
        {
            "batch_of_1000_p50_ms": round(quantile(one, 0.5), 2),
            "batch_of_1000_p99_ms": round(quantile(one, 0.99), 2),
            "amortised_p50_ms": round(quantile(ten, 0.5), 2),
            "amortised_p99_ms": round(quantile(ten, 0.99), 2),
        },
    )


if __name__ == "__main__":
    asyncio.run(main())

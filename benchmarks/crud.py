"""Latency of creating, reading, listing, changing and deleting jobs over HTTP, beside 100,000 jobs.

Four clients work at once, without a pause. A read is of a job that was just written: no cache answers it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

from firing import every_key, seed
from harness import Machine, loop_ms, machine, publish, quantile

from mainspring.client import AsyncClient

JOBS = int(os.environ.get("BENCH_JOBS", "100000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "300"))
CLIENTS = 4
GOAL_MS = 50
WARM_UP = 20
"""Rounds of each client that are not counted."""


async def use(client: AsyncClient, number: int, took: dict[str, list[float]]) -> None:
    """Create, read, list, change and delete one job after another."""

    async def timed(name: str, call: Awaitable[Any]) -> Any:
        begun = time.perf_counter()
        found = await call
        took[name].append((time.perf_counter() - begun) * 1000)
        return found

    for n in range(WARM_UP + ROUNDS):
        if n == WARM_UP:
            for name in list(took):
                took[name].clear()
        name = f"crud-{number}-{n}"
        spec = {"name": name, "task": {"kind": "noop"}, "schedule": {"cron": "0 3 * * *"}}
        await timed("create", client.create_job(spec))
        await timed("read", client.job(name))
        await timed("list", client.jobs(prefix=f"crud-{number}-", limit=50))
        await timed("change", client.patch_job(name, {"priority": n % 10}))
        await timed("delete", client.delete_job(name))


async def measure(target: Machine) -> dict[str, list[float]]:
    await seed(target, [every_key(86_400_000, n * 1000) for n in range(1000)], jobs=JOBS, prefix="crowd-")
    target.serve("api")
    await target.until_ready()
    found: list[dict[str, list[float]]] = [defaultdict(list) for _ in range(CLIENTS)]
    clients = [target.client() for _ in range(CLIENTS)]
    await asyncio.gather(*(use(client, n, found[n]) for n, client in enumerate(clients)))
    for client in clients:
        await client.aclose()
    return {
        name: [ms for each in found for ms in each[name]] for name in ("create", "read", "list", "change", "delete")
    }


async def main() -> None:
    async with machine() as target:
        begun = time.perf_counter()
        found = await measure(target)
        took = time.perf_counter() - begun
    calls = sum(map(len, found.values()))
    print(f"{calls:,} calls in {took:.1f} s with the set-up; a fixed loop of Python took {loop_ms():.1f} ms")
    rows = [
        f"| {name} | {quantile(ms, 0.5):.1f} | {quantile(ms, 0.99):.1f} | {GOAL_MS} |" for name, ms in found.items()
    ]
    publish(
        "crud",
        [
            f"- {CLIENTS} clients in one process without pauses, one api process, {JOBS:,} other jobs; {calls:,} calls",
            "",
            "| jobs over HTTP | p50 ms | p99 ms | goal, p99 |",
            "|---|---|---|---|",
            *rows,
        ],
        {f"{name}_p99_ms": round(quantile(ms, 0.99), 1) for name, ms in found.items()},
    )


if __name__ == "__main__":
    asyncio.run(main())

"""Fairness under load: one tenant queues 100,000 executions, then another submits ten for the same workers.

Goal: the ten wait at most twice as long as on an idle system, plus the duration of one execution. The wait is from due
to start; the last of the ten counts, and the average is reported too.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from harness import Machine, machine, publish, quantile

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING

FLOOD = int(os.environ.get("BENCH_FLOOD", "100000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
FEW = 10
SLOTS = 8
TAKES_S = 0.2
MOST_S = 120.0


@dataclass(frozen=True)
class Wait:
    """Seconds from due to start."""

    last_s: float
    mean_s: float
    took_s: float


async def few(target: Machine, client: AsyncClient) -> Wait:
    """Submit ten at once; return when the last has ended."""
    made = (await client.submit([wire.BatchItem(job="few")] * FEW)).items
    end = time.perf_counter() + MOST_S
    async with target.database.connection() as connection:
        while time.perf_counter() < end:
            rows = await connection.fetch(
                "SELECT extract(epoch FROM started_at - due_at)::float8 AS wait, duration_ms FROM history"
                " WHERE execution_id = ANY ($1::uuid[]) AND state = 'succeeded'",
                [e.execution_id for e in made],
            )
            if len(rows) == FEW:
                waits = [row["wait"] for row in rows]
                return Wait(max(waits), sum(waits) / FEW, sum(row["duration_ms"] for row in rows) / FEW / 1000)
            await asyncio.sleep(0.05)
    raise RuntimeError(f"not all of the ten had ended after {MOST_S:g} s")


async def rounds(target: Machine, client: AsyncClient) -> list[Wait]:
    return [await few(target, client) for _ in range(ROUNDS)]


async def main() -> None:
    async with machine() as target:
        async with target.database.connection() as connection:
            other = await connection.fetchval("INSERT INTO tenants (name) VALUES ('other') RETURNING tenant_id")
            token = await issue_token(connection, tenant=other, name="few", scopes=("admin",))
            shared = await issue_token(
                connection, tenant=1, name="shared", scopes=("worker", "shared"), grants=EVERYTHING
            )
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        target.work("--shared", slots=SLOTS, token=shared)
        task = {"kind": "shell", "argv": ["sleep", str(TAKES_S)]}
        async with target.client() as a, AsyncClient(target.url, token) as b:
            await a.create_job({"name": "flood", "task": task})
            await b.create_job({"name": "few", "task": task})
            await few(target, b)  # warm-up
            idle = await rounds(target, b)
            coming = await flooded(target, a, b)
            async with target.database.connection() as connection:
                standing = await rounds(target, b)
                left = await connection.fetchval("SELECT count(*) FROM executions")
    report(idle, coming, standing, left)


async def flooded(target: Machine, a: AsyncClient, b: AsyncClient) -> list[Wait]:
    """Wait until the whole flood is queued."""

    async def submit() -> None:
        for start in range(0, FLOOD, 1000):
            await a.submit([wire.BatchItem(job="flood")] * min(1000, FLOOD - start))

    flooding = asyncio.create_task(submit())
    found = []
    while not flooding.done():
        found.append(await few(target, b))
    await flooding
    return found


def report(idle: list[Wait], coming: list[Wait], standing: list[Wait], left: int) -> None:
    def middle(waits: list[Wait], part: str) -> float:
        return quantile([getattr(w, part) for w in waits], 0.5)

    took = middle(idle, "took_s")
    bound = {part: 2 * middle(idle, part) + took for part in ("last_s", "mean_s")}
    rows = [("idle", idle), (f"while {FLOOD:,} of another tenant come in", coming), (f"{FLOOD:,} queued", standing)]
    lines = [
        f"- one worker of {SLOTS} slots for all tenants, executions of {took * 1000:.0f} ms (`sleep {TAKES_S}`), ten at"
        f" a time, {ROUNDS} times; {left:,} of the flood were left at the end; medians, and the worst round",
        "",
        "| | last of the ten starts after, ms | worst | average of the ten, ms | goal |",
        "|---|---|---|---|---|",
    ]
    for name, waits in rows:
        worst = max(w.last_s for w in waits)
        goal = "" if waits is idle else f"≤ {bound['last_s'] * 1000:.0f} and {bound['mean_s'] * 1000:.0f}"
        lines.append(
            f"| {name} | {middle(waits, 'last_s') * 1000:.0f} | {worst * 1000:.0f} |"
            f" {middle(waits, 'mean_s') * 1000:.0f} | {goal} |"
        )
    publish(
        "fairness",
        lines,
        {
            "idle_last_ms": round(middle(idle, "last_s") * 1000),
            "goal_last_ms": round(bound["last_s"] * 1000),
            "coming_last_ms": round(middle(coming, "last_s") * 1000),
            "flood_last_ms": round(middle(standing, "last_s") * 1000),
            "idle_mean_ms": round(middle(idle, "mean_s") * 1000),
            "goal_mean_ms": round(bound["mean_s"] * 1000),
            "flood_mean_ms": round(middle(standing, "mean_s") * 1000),
            "fair": all(middle(standing, part) <= bound[part] for part in bound),
        },
    )


if __name__ == "__main__":
    asyncio.run(main())

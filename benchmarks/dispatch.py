"""Cost of labels, several lines, limits and fair shares: CPU per execution of the same drain with and without them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from harness import Machine, machine, publish

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING

N = int(os.environ.get("BENCH_N", "40000"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "1000"))
NOOP = {"kind": "noop"}

CASES: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "four lines: labels, priorities": [
        {}, {"labels": {"zone": "eu"}, "priority": 7}, {"labels": {"zone": "*"}}, {"queue": "long", "priority": 2},
    ],
    "a cpu resource each": [{"resources": {"cpu": 0.001}}],
    "a concurrency key that is never full": [{"concurrency": {"key": "k", "limit": 100_000}}],
    "plain, 200 slots": [{}],
    "a concurrency key of 200": [{"concurrency": {"key": "k2", "limit": 200}}],
}  # fmt: skip


async def submit(clients: list[tuple[AsyncClient, str]]) -> None:
    per = N // len(clients) // 500
    gate = asyncio.Semaphore(4)

    async def one(client: AsyncClient, job: str) -> None:
        async with gate:
            answer = await client.submit([wire.BatchItem(job=job)] * 500)
            assert all(item.status == 201 for item in answer.items)

    await asyncio.gather(*[one(client, job) for client, job in clients for _ in range(per)])


async def drain(target: Machine, *options: str, slots: int = SLOTS, token: str = "") -> dict[str, float]:
    """Return CPU microseconds per execution by role, from the worker's start to the last end."""
    before = target.cpu_s()
    target.work("--labels", "zone=eu", *options, slots=slots, token=token)
    async with target.database.connection() as connection:
        while await connection.fetchval("SELECT count(*) FROM executions") > 0:
            await asyncio.sleep(0.1)
    used = {role: s - before.get(role, 0.0) for role, s in target.cpu_s().items()}
    target.stop("worker")
    return {role: s / N * 1e6 for role, s in used.items()}


async def main() -> None:
    found: dict[str, dict[str, float]] = {}
    async with machine(used=True) as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        async with target.database.connection() as connection:
            other = await connection.fetchval("INSERT INTO tenants (name) VALUES ('other') RETURNING tenant_id")
            shared = await issue_token(
                connection, tenant=1, name="shared", scopes=("worker", "shared"), grants=EVERYTHING
            )
            theirs = await issue_token(connection, tenant=other, name="theirs", scopes=("admin",))
        async with target.client() as client, AsyncClient(target.url, theirs) as their_client:
            for title, specs in CASES.items():
                jobs = [
                    await client.create_job({"name": f"j{len(found)}-{n}", "task": NOOP, **spec})
                    for n, spec in enumerate(specs)
                ]
                await submit([(client, job.name) for job in jobs])
                found[title] = await drain(target, slots=200 if "200 slots" in title else SLOTS)
            both = []
            for c in (client, their_client):
                both.append((c, (await c.create_job({"name": "shared", "task": NOOP})).name))
            await submit(both)
            found["two tenants on a shared worker"] = await drain(target, "--shared", token=shared)
    plain = {False: sum(found["plain"].values()), True: sum(found["plain, 200 slots"].values())}
    rows = [
        f"| {title} | {used['api']:.1f} | {used['postgresql']:.1f} | {used['worker']:.1f} |"
        f" {sum(used.values()) / plain['key of 200' in title] - 1:+.0%} |"
        for title, used in found.items()
    ]
    publish(
        "dispatch",
        [
            f"- {N:,} no-op executions per row, one worker of {SLOTS} slots, one api process; CPU µs per execution",
            "- goal: within 30 % of plain; the key of 200, which lets only 200 run at once, is held against 200"
            " slots without it",
            "",
            "| | api | postgresql | worker | all, against plain |",
            "|---|---|---|---|---|",
            *rows,
        ],
        {title: {role: round(us, 1) for role, us in used.items()} for title, used in found.items()},
    )


if __name__ == "__main__":
    asyncio.run(main())

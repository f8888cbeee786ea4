"""Latency from submission to an idle worker, by delivery path: direct handoff, notification, polling.

An idle worker speaks the worker protocol; one execution is submitted at a time. Measured from just before the
submission is sent until the worker has received the execution:

- handed over: the long poll waits at the api process that takes the submission
- woken: the long poll waits at another api process, which PostgreSQL's NOTIFY wakes
- asked every 100 ms, every second: short polls that wait for nothing
- found: the NOTIFY was lost, and the slow poll of the dispatcher finds it
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

from harness import Machine, machine, publish, quantile

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.store.db import Database
from mainspring.worker.transport.api_client import ApiAddress, ApiClient

N = int(os.environ.get("BENCH_N", "200"))
LOOKS = int(os.environ.get("BENCH_LOOKS", "20"))
LONG_POLL_S = 30.0
JOB = "idle"


class Idle:
    """An idle worker with one slot."""

    def __init__(self, link: ApiClient, session_id: UUID) -> None:
        self._link, self._session_id = link, session_id

    @classmethod
    async def register(cls, address: ApiAddress, name: str) -> Idle:
        link = ApiClient(address)
        register = wire.Register(name=name, host="here", version="1", slots=1, queues=["short"], kinds=["noop"])
        return cls(link, (await link.register(register)).session_id)

    async def poll(self, wait_s: float, free: int = 1) -> list[wire.Assignment]:
        given = await self._link.poll(wire.Poll(session_id=self._session_id, free=free, wait_s=wait_s))
        return given.executions

    async def asks(self, every_s: float) -> list[wire.Assignment]:
        """Poll at an interval until there is work, starting at a random moment."""
        await asyncio.sleep(random.uniform(0, every_s))
        while not (found := await self.poll(0.0)):
            await asyncio.sleep(every_s)
        return found

    async def done(self, given: wire.Assignment) -> None:
        result = wire.Result(
            execution_id=given.execution_id, attempt=given.attempt, outcome="succeeded", duration_ms=0, exit_code=0
        )
        settled = await self._link.results(wire.Results(session_id=self._session_id, results=[result]))
        assert not settled.stale

    async def close(self) -> None:
        await self._link.end_session(self._session_id)
        await self._link.close()


async def idle_to_start(
    idle: Idle, client: AsyncClient, *, every_s: float = 0.0, silent: Database | None = None
) -> float:
    """Return milliseconds from before the submission until the worker has it; with `silent`, no NOTIFY is sent."""
    waiting = asyncio.create_task(idle.asks(every_s) if every_s else idle.poll(LONG_POLL_S))
    await asyncio.sleep(0.02 if not every_s else random.uniform(0, every_s))  # the poll is in by then
    sent = time.perf_counter()
    if silent is None:
        await client.trigger(JOB)
    else:
        async with silent.connection() as connection:
            await connection.execute(WITHOUT_NOTIFY, JOB)
    (given,) = await waiting
    took = (time.perf_counter() - sent) * 1000
    await idle.done(given)
    return took


WITHOUT_NOTIFY = """
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank, fire_at,
                        due_at, queued_at, line_id)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM now.at) * 1000)::bigint), 12, '0'), job_id,
                    gen_random_uuid()::text),
       job_id, tenant_id, version, shard, priority, 'queued', 'manual', queue,
       claim_rank(floor(extract(epoch FROM now.at) * 1000)::bigint, priority), now.at, now.at, now.at, line_id
FROM jobs CROSS JOIN (SELECT db_now()) AS now (at) WHERE name = $1
"""


async def second_api(target: Machine) -> str:
    """Start another api process on the same database, and return its address."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        other = replace(target, url=f"http://127.0.0.1:{sock.getsockname()[1]}")
    other.serve("api")
    await other.until_ready()
    return other.url


async def main() -> None:
    found: dict[str, list[float]] = {}
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        here = ApiAddress(target.url, target.worker_token)
        other = await second_api(target)
        async with target.client() as client:
            await client.create_job({"name": JOB, "task": {"kind": "noop"}})
            near = await Idle.register(here, "near")
            ways: list[tuple[str, int, dict[str, Any]]] = [
                ("handed over", N, {}),
                ("asked every 100 ms", N, {"every_s": 0.1}),
                ("asked every second", LOOKS, {"every_s": 1.0}),
                ("found", LOOKS, {"silent": target.database}),
            ]
            for way, n, options in ways:
                await idle_to_start(near, client)  # opens connections
                found[way] = [await idle_to_start(near, client, **options) for _ in range(n)]
            await near.close()
            far = await Idle.register(ApiAddress(other, target.worker_token), "far")
            await idle_to_start(far, client)
            found["woken"] = [await idle_to_start(far, client) for _ in range(N)]
            await far.close()
    rows = [
        f"| {way} | {quantile(found[way], 0.5):.1f} | {quantile(found[way], 0.99):.1f} | {len(found[way])} |"
        for way in ("handed over", "woken", "asked every 100 ms", "asked every second", "found")
    ]
    publish(
        "delivery",
        [
            "- one idle worker, one submission at a time; from before it is sent until the worker has it, ms",
            "",
            "| way | p50 | p99 | measured |",
            "|---|---|---|---|",
            *rows,
        ],
        {
            way: {"p50_ms": round(quantile(ms, 0.5), 2), "p99_ms": round(quantile(ms, 0.99), 2)}
            for way, ms in found.items()
        },
    )


if __name__ == "__main__":
    asyncio.run(main())

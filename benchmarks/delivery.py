"""Latency from submission to an idle worker, by delivery path: stream, long poll, notification, short polls.

An idle worker speaks the worker protocol; one execution is submitted at a time. Measured from just before the
submission is sent until the worker has received the execution:

- pushed: the worker has an open stream at the api process that takes the submission
- pushed from another process: its stream is at another api process, which PostgreSQL's NOTIFY wakes
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

import msgspec
from harness import Machine, machine, publish, quantile

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.store.db import Database
from mainspring.worker.transport.api_client import ApiAddress, ApiClient
from mainspring.worker.transport.stream_connection import StreamConnection, connect

N = int(os.environ.get("BENCH_N", "200"))
LOOKS = int(os.environ.get("BENCH_LOOKS", "20"))
LONG_POLL_S = 30.0
HEARTBEAT_S = 5.0
WARM_UP = 20
"""Submissions before each way is measured: they open connections and prepare statements."""
JOB = "idle"


class Idle:
    """An idle worker with one slot, which polls."""

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

    async def receive(self) -> list[wire.Assignment]:
        return await self.poll(LONG_POLL_S)

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


_decode = msgspec.json.Decoder(wire.Work | wire.Answer | wire.Rejected | wire.StateCapacity | wire.Closing).decode


class Pushed(Idle):
    """An idle worker with one slot and an open stream."""

    _connection: StreamConnection

    def __init__(self, link: ApiClient, session_id: UUID) -> None:
        super().__init__(link, session_id)
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._number = self._received = 0
        self._renewed_at = time.perf_counter()

    @classmethod
    async def register(cls, address: ApiAddress, name: str) -> Pushed:
        idle = await super().register(address, name)
        assert isinstance(idle, Pushed)
        idle._connection = await connect(
            address, "/api/v1/worker/stream", idle._lines.put_nowait, lambda _: idle._lines.put_nowait(b"")
        )
        one = wire.Capacity(received=0, free=1)
        idle._connection.write(encode(wire.OpenStream(session_id=idle._session_id, capacity=one)))
        async with asyncio.timeout(LONG_POLL_S):
            assert await idle._lines.get() == b"{}", f"the stream was refused: {idle._connection.problem!r}"
        return idle

    async def _message(self) -> Any:
        async with asyncio.timeout(LONG_POLL_S):
            line = await self._lines.get()
        assert line, "the stream has ended"
        return _decode(line)

    async def receive(self) -> list[wire.Assignment]:
        while not isinstance(message := await self._message(), wire.Work) or not message.executions:
            if isinstance(message, wire.StateCapacity):
                self._connection.write(encode(wire.Capacity(received=self._received, free=1)))
        self._received += len(message.executions)
        return message.executions

    async def _call(self, message: type[Any], **fields: Any) -> Any:
        self._number += 1
        self._connection.write(encode(message(number=self._number, **fields)))
        while not isinstance(answer := await self._message(), wire.Answer) or answer.number != self._number:
            assert not isinstance(answer, wire.Rejected), answer
        return answer.body

    async def done(self, given: wire.Assignment) -> None:
        result = wire.Result(
            execution_id=given.execution_id, attempt=given.attempt, outcome="succeeded", duration_ms=0, exit_code=0
        )
        capacity = wire.Capacity(received=self._received, free=1)
        settled = await self._call(wire.ReportResults, results=[result], capacity=capacity)
        assert not settled["stale"]
        if time.perf_counter() - self._renewed_at > HEARTBEAT_S:
            await self._call(wire.RenewLease, running=[])
            self._renewed_at = time.perf_counter()

    async def close(self) -> None:
        self._connection.close()
        await super().close()


async def idle_to_start(
    idle: Idle, client: AsyncClient, *, every_s: float = 0.0, silent: Database | None = None
) -> float:
    """Return milliseconds from before the submission until the worker has it; with `silent`, no NOTIFY is sent."""
    waiting = asyncio.create_task(idle.asks(every_s) if every_s else idle.receive())
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


async def measure(target: Machine, other: str) -> dict[str, list[float]]:
    """Return milliseconds by way; one worker at a time is there."""
    silent = {"silent": target.database}
    here, there = (ApiAddress(url, target.worker_token) for url in (target.url, other))
    ways: list[tuple[str, type[Idle], ApiAddress, int, dict[str, Any]]] = [
        ("pushed", Pushed, here, N, {}),
        ("pushed from another process", Pushed, there, N, {}),
        ("handed over", Idle, here, N, {}),
        ("woken", Idle, there, N, {}),
        ("asked every 100 ms", Idle, here, N, {"every_s": 0.1}),
        ("asked every second", Idle, here, LOOKS, {"every_s": 1.0}),
        ("found", Idle, here, LOOKS, silent),
    ]
    found: dict[str, list[float]] = {}
    async with target.client() as client:
        await client.create_job({"name": JOB, "task": {"kind": "noop"}})
        for way, kind, address, n, options in ways:
            idle = await kind.register(address, way)
            for _ in range(WARM_UP):
                await idle_to_start(idle, client)
            found[way] = [await idle_to_start(idle, client, **options) for _ in range(n)]
            await idle.close()
    return found


async def main() -> None:
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        found = await measure(target, await second_api(target))
    rows = [f"| {way} | {quantile(ms, 0.5):.1f} | {quantile(ms, 0.99):.1f} | {len(ms)} |" for way, ms in found.items()]
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

"""PgQueuer: the asyncpg driver, LISTEN/NOTIFY dispatch, all tables logged."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from verbs import DSN, Client, Peer, main, record, record_first

BATCH = {"latency": 10, "drain": 1000}  # 10 is its default


async def prepare() -> None:
    await Queries(AsyncpgDriver(await asyncpg.connect(DSN))).install()


async def work(mode: str) -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

    @queuer.entrypoint("first_line")
    async def first_line(job: Job) -> None:
        at = time.time()
        record(json.loads(job.payload or b"0"), at)

    @queuer.entrypoint("nothing")
    async def nothing(job: Job) -> None:
        record_first()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(batch_size=BATCH[mode], dequeue_timeout=timedelta(seconds=30))


@asynccontextmanager
async def connect(connections: int) -> AsyncIterator[Client]:
    async with asyncpg.create_pool(DSN, min_size=connections, max_size=connections) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def one(sent: float) -> None:
            await queries.enqueue("first_line", json.dumps(sent).encode())

        async def many(count: int) -> None:
            await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)

        yield Client(one, many)


if __name__ == "__main__":
    main(Peer(prepare, work, connect))

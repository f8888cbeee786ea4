"""Oban for Python: its default of 10 jobs at a time, PostgreSQL notifications."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oban import Oban, job
from oban.schema import install
from verbs import DSN, Client, Peer, main, record, record_first


@job(queue="default")
async def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


@job(queue="default")
async def nothing() -> None:
    record_first()


async def prepare() -> None:
    pool = await Oban.create_pool(DSN)
    await install(pool)
    await pool.close()


async def work(mode: str) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    pool = await Oban.create_pool(DSN)
    async with Oban(pool=pool, queues={"default": 10}):
        await over.wait()
    await pool.close()


@asynccontextmanager
async def connect(connections: int) -> AsyncIterator[Client]:
    pool = await Oban.create_pool(DSN, min_size=connections, max_size=connections)
    async with Oban(pool=pool) as oban:

        async def one(sent: float) -> None:
            await oban.enqueue(first_line.new(sent))

        async def many(count: int) -> None:
            await oban.enqueue_many([nothing.new() for _ in range(count)])

        yield Client(one, many)
    await pool.close()


if __name__ == "__main__":
    import oban_peer  # the name by which a worker finds the functions

    main(Peer(oban_peer.prepare, oban_peer.work, oban_peer.connect))

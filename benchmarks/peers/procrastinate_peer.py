"""Procrastinate: psycopg, 10 jobs at a time, PostgreSQL notifications."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector
from verbs import DSN, Client, Peer, main, record, record_first

app = App(connector=PsycopgConnector(conninfo=DSN))


@app.task(name="first_line")
async def first_line(sent: float) -> None:
    at = time.time()
    record(sent, at)


@app.task(name="nothing")
async def nothing() -> None:
    record_first()


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def work(mode: str) -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=10, shutdown_graceful_timeout=5)


@asynccontextmanager
async def connect(connections: int) -> AsyncIterator[Client]:
    pooled = PsycopgConnector(conninfo=DSN, min_size=connections, max_size=connections)
    with app.replace_connector(pooled):
        await pooled.open_async()

        async def one(sent: float) -> None:
            await first_line.defer_async(sent=sent)

        async def many(count: int) -> None:
            await nothing.batch_defer_async(*[{} for _ in range(count)])

        yield Client(one, many)
        await pooled.close_async()


if __name__ == "__main__":
    main(Peer(prepare, work, connect))

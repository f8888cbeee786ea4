"""The bus on LISTEN/NOTIFY: one connection per process hears every channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from mainspring.service import Loops, Service
from mainspring.store.db import AWAY, Database
from mainspring.store.queries import q

log = structlog.get_logger()

ALIVE_S = 5.0


class PostgresBus(Service):
    """Implements ports.Bus. Hearing resumes by itself when the database is back."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loops = Loops("bus")
        self._hearers: dict[str, list[Callable[[str], None]]] = {}
        self._gaps: list[Callable[[], None]] = []
        self._ready = asyncio.Event()

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        """Before `start`."""
        self._hearers.setdefault(channel, []).append(hear)
        self._gaps.append(on_gap)

    async def start(self) -> None:
        self._loops.forever("listen", self._listen, backoff_s=0.2)

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        await self._loops.stop()

    async def publish(self, channel: str, payload: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(q("notify"), channel, payload)

    async def _listen(self) -> None:
        try:
            connection = await self._database.dedicated()
        except AWAY as error:
            raise ConnectionError(f"can't listen: {error}") from error
        ended = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: ended.set())
            for channel in self._hearers:
                await connection.add_listener(channel, self._hear)
            self._ready.set()
            for gap in self._gaps:
                gap()
            while not ended.is_set():
                try:
                    await asyncio.wait_for(ended.wait(), ALIVE_S)
                except TimeoutError:
                    # A connection cut off without a word is noticed here, not hours later.
                    await connection.execute("SELECT", timeout=ALIVE_S)
        finally:
            connection.terminate()
        raise ConnectionError("the listening connection ended")

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        for hear in self._hearers.get(channel, ()):
            hear(str(payload))

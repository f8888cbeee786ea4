"""The bus on LISTEN/NOTIFY: one connection per process listens on all channels."""

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
    """Implements ports.Bus. Listening resumes automatically when the database is back."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loops = Loops("bus")
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}
        self._gaps: list[Callable[[], None]] = []
        self._ready = asyncio.Event()

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        """Call before `start`."""
        self._subscribers.setdefault(channel, []).append(hear)
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
            for channel in self._subscribers:
                await connection.add_listener(channel, self._on_notification)
            self._ready.set()
            for gap in self._gaps:
                gap()
            while not ended.is_set():
                try:
                    await asyncio.wait_for(ended.wait(), ALIVE_S)
                except TimeoutError:
                    # Detects a connection that was cut off silently, which TCP would report only hours later.
                    await connection.execute("SELECT", timeout=ALIVE_S)
        finally:
            connection.terminate()
        raise ConnectionError("the listening connection ended")

    def _on_notification(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        for hear in self._subscribers.get(channel, ()):
            hear(str(payload))

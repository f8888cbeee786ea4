"""The bus on LISTEN/NOTIFY: one connection per process listens on all channels and publishes on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import asyncpg
import structlog

from mainspring import ports
from mainspring.service import Loops, Service
from mainspring.store.db import AWAY, Database, notify, send_hints
from mainspring.store.hints import Hints, add_hint, text_of

log = structlog.get_logger()

ALIVE_S = 5.0
GATHER_S = 0.002
"""Shortest time between two statements that publish; a lone hint is sent at once."""
MAX_BATCH = 1000
MAX_PENDING = 20_000
"""Hints kept for other processes while the database is away; further ones are dropped."""
MAX_PAYLOAD = 7_999
"""Bytes that PostgreSQL accepts in one NOTIFY."""


class PostgresBus(Service):
    """Implements ports.Bus, and publishes the hints of its database while it runs.

    Listening resumes automatically when the database is back.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loops = Loops("bus")
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}
        self._gaps: list[Callable[[], None]] = []
        self._ready = asyncio.Event()
        self._pending: Hints = {}
        self._wake = asyncio.Event()
        self._hinted: ports.Bus = self
        self._pid = 0  # the backend that listens and publishes for this process

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        """Call before `start`."""
        self._subscribers.setdefault(channel, []).append(hear)
        self._gaps.append(on_gap)

    async def start(self) -> None:
        self._database.bus = self
        self._loops.forever("listen", self._listen, backoff_s=0.2)

    def hand_hints_to(self, above: ports.Bus) -> None:
        """Let another bus publish the hints of the database; it uses this one when its engine is unavailable."""
        self._database.bus = self._hinted = above

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        if self._database.bus is self._hinted:
            self._database.bus = None
        await self._loops.stop()
        if self._pending:
            try:
                async with self._database.connection() as connection:
                    await send_hints(connection, self._pending)
            except AWAY as error:
                log.debug("hints.dropped", hints=len(self._pending), error=repr(error))

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        self.deliver(channel, text_of(payload, lowest))
        if not only_here:
            self.send_to_others(channel, payload, lowest)

    def send_to_others(self, channel: str, payload: str, lowest: int | None) -> None:
        """Publish to the other processes only."""
        if len(payload) <= MAX_PAYLOAD and len(self._pending) < MAX_PENDING:
            add_hint(self._pending, channel, payload, lowest)
            self._wake.set()

    @property
    def channels(self) -> list[str]:
        """The channels that have subscribers in this process."""
        return list(self._subscribers)

    async def _listen(self) -> None:
        try:
            connection = await self._database.dedicated(prepared=True)
        except AWAY as error:
            raise ConnectionError(f"can't listen: {error}") from error
        try:
            self._pid = connection.get_server_pid()
            connection.add_termination_listener(lambda _: self._wake.set())
            for channel in self._subscribers:
                await connection.add_listener(channel, self._on_notification)
            self._ready.set()
            self.announce_gap()
            while not connection.is_closed():
                await self._send(connection)
        except AWAY as error:
            raise ConnectionError(f"the listening connection ended: {error!r}") from error
        finally:
            connection.terminate()
        raise ConnectionError("the listening connection ended")

    def announce_gap(self) -> None:
        """Let the subscribers check for what they missed."""
        for gap in self._gaps:
            gap()

    async def _send(self, connection: asyncpg.Connection[Any]) -> None:
        """Publish what is pending in one statement; with nothing to publish, check the connection."""
        try:
            async with asyncio.timeout(ALIVE_S):  # wait_for would miss a cancellation that comes with a wake-up
                await self._wake.wait()
        except TimeoutError:
            # Detects a connection that was cut off silently, which TCP would report only hours later.
            await connection.execute("SELECT", timeout=ALIVE_S)
            return
        self._wake.clear()
        batch = dict(islice(self._pending.items(), MAX_BATCH))
        if not batch:
            return
        for key in batch:
            del self._pending[key]
        try:
            await notify(connection, batch)
        except asyncio.CancelledError:
            for (channel, payload), lowest in batch.items():
                add_hint(self._pending, channel, payload, lowest)
            raise
        await asyncio.sleep(GATHER_S)
        if self._pending:
            self._wake.set()

    def _on_notification(self, _connection: Any, pid: int, channel: str, payload: object) -> None:
        if pid != self._pid:  # its own were delivered when they were published
            self.deliver(channel, str(payload))

    def deliver(self, channel: str, payload: str) -> None:
        """Deliver to the subscribers of this process only."""
        for hear in self._subscribers.get(channel, ()):
            try:
                hear(payload)
            except Exception:
                log.exception("hint.failed", channel=channel, payload=payload)

"""What anybody wants to hear, kept in memory: while nobody does, settling asks and writes nothing for it."""

from __future__ import annotations

import asyncio

from mainspring import ports
from mainspring.service import Loops, Service
from mainspring.store import channels, needs
from mainspring.store.db import Database

BREATH_S = 0.05
"""However often channels and jobs are edited, the list is read no more often than this."""


class Subscriptions(Service):
    """The names of the events somebody subscribed to, as of a moment ago."""

    def __init__(self, database: Database, bus: ports.Bus) -> None:
        self._database = database
        self._wanted: frozenset[str] = frozenset()
        self.needs = False  # some job needs another, so that a success may matter to it
        self._changed = asyncio.Event()
        self._changed.set()
        self._ready = asyncio.Event()
        self._loops = Loops("subscriptions")
        bus.subscribe(ports.CHANNELS, lambda _: self._changed.set(), on_gap=self._changed.set)
        bus.subscribe(ports.RUNS, self._hear_runs, on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("read", self._read_step)

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        await self._loops.stop()

    async def read(self) -> None:
        async with self._database.connection() as connection:
            self._wanted = await channels.subscribed(connection)
            self.needs = await needs.has_needs(connection)
        self._ready.set()

    def wants(self, event: str) -> bool:
        return event in self._wanted

    @property
    def endings(self) -> bool:
        """Whether a success may have to be told."""
        return not self._wanted.isdisjoint(("execution.succeeded", "job.recovered", "job.slow"))

    @property
    def troubles(self) -> bool:
        """Whether any other ending may have to be told."""
        return not self._wanted.isdisjoint(_TROUBLES)

    @property
    def retries(self) -> bool:
        return "execution.retrying" in self._wanted

    def _hear_runs(self, payload: str) -> None:
        if payload == "needs":
            self._changed.set()

    async def _read_step(self) -> None:
        await self._changed.wait()
        self._changed.clear()
        try:
            await self.read()
        except BaseException:
            self._changed.set()
            raise
        await asyncio.sleep(BREATH_S)


_TROUBLES = (
    "execution.failed", "execution.timed_out", "execution.cancelled", "execution.lost", "execution.succeeded",
    "job.failed",
)  # fmt: skip

"""Events with a subscriber, cached in memory: without subscribers, settling successes writes nothing to the outbox."""

from __future__ import annotations

import asyncio
import contextlib

from mainspring import ports
from mainspring.service import Loops, Service
from mainspring.store import channels, needs, triggers
from mainspring.store.db import Database

MIN_INTERVAL_S = 0.05
"""The list is read at most this often, however often channels and jobs are edited."""
MAX_INTERVAL_S = 30.0
"""It is read at least this often, in case a hint was lost."""


class Subscriptions(Service):
    """The names of the events with a subscriber, slightly delayed: too late for what must never be missed."""

    def __init__(self, database: Database, bus: ports.Bus) -> None:
        self._database = database
        self._wanted: frozenset[str] = frozenset()
        self.needs = False  # some job needs another, so a success may release it
        self.completions = False  # some trigger waits for the end of an execution
        self._changed = asyncio.Event()
        self._changed.set()
        self._ready = asyncio.Event()
        self._loops = Loops("subscriptions")
        bus.subscribe(ports.CHANNELS, lambda _: self._changed.set(), on_gap=self._changed.set)
        bus.subscribe(ports.TRIGGERS, self._on_triggers, on_gap=self._changed.set)
        bus.subscribe(ports.RUNS, self._on_runs, on_gap=lambda: None)

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
            self.completions = await triggers.has_completions(connection)
        self._ready.set()

    def wants(self, event: str) -> bool:
        return event in self._wanted

    @property
    def successes(self) -> bool:
        """Whether a success may have a subscriber."""
        return not self._wanted.isdisjoint(("execution.succeeded", "job.recovered", "job.slow"))

    def _on_runs(self, payload: str) -> None:
        if payload == ports.NEEDS:
            self._changed.set()

    def _on_triggers(self, payload: str) -> None:
        if payload == ports.EDIT:
            self._changed.set()

    async def _read_step(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_INTERVAL_S):
                await self._changed.wait()
        self._changed.clear()
        try:
            await self.read()
        except BaseException:
            self._changed.set()
            raise
        await asyncio.sleep(MIN_INTERVAL_S)

"""Has the events of an execution before its end written while a channel or the event stream wants them.

Triggers of the database write them, and are disabled otherwise: then a statement on the hot path costs what it cost
without them. A trigger publishes no hint, so this loop wakes the deliverer and the relay at an interval instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from mainspring import ports
from mainspring.service import Loops, Service
from mainspring.store import event_outbox
from mainspring.store.db import Database

log = structlog.get_logger()

CHECK_S = 5.0
"""How often the leader checks what is wanted, in case a hint was lost."""
WAKE_S = 0.5
STAND_BY_S = 1.0
RETRY_S = 2.0


class ExecutionFollower(Service):
    """The loops of the leader. Events begin about a second after the first subscription."""

    def __init__(self, database: Database, bus: ports.Bus, *, leads: Callable[[], bool]) -> None:
        self._database = database
        self._bus = bus
        self._leads = leads
        self._changed = asyncio.Event()
        self._following = asyncio.Event()
        self._loops = Loops("follow executions")
        bus.subscribe(ports.CHANNELS, lambda _: self._changed.set(), on_gap=self._changed.set)

    async def start(self) -> None:
        self._loops.forever("check", self._check_step)
        self._loops.forever("wake", self._wake_step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _check_step(self) -> None:
        if not self._leads():
            self._following.clear()
            await asyncio.sleep(STAND_BY_S)
            return
        self._changed.clear()
        if not await self.follow():
            await asyncio.sleep(RETRY_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), CHECK_S)

    async def follow(self) -> bool:
        """Enable or disable the triggers as wanted; False if the tables are in use, so that it must be tried again."""
        async with self._database.connection() as connection:
            following = await event_outbox.follow_executions(connection)
        if following is None:
            log.info("events.follow_delayed", retry_s=RETRY_S)
            return False
        self._following.set() if following else self._following.clear()
        return True

    async def _wake_step(self) -> None:
        await self._following.wait()
        self._bus.publish(ports.OUTBOX, "")
        await asyncio.sleep(WAKE_S)

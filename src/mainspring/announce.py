"""Publishes execution events on the bus, batched: one message per interval, not one per execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from mainspring.codec import encode
from mainspring.domain.events import Event, Kind
from mainspring.ports import EVENTS, Bus
from mainspring.service import Loops, Service

MOST_IDS = 48
"""Ids per kind in one message: 48 ids of 39 bytes, for four kinds, fit into the 8,000 bytes of a NOTIFY."""
INTERVAL_S = 0.02


class Announcer(Service):
    """Announces events to live views. Best effort: events during an outage of the bus are dropped."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._pending: dict[Kind, dict[UUID, None]] = {}
        self._more: dict[Kind, int] = {}
        self._any = asyncio.Event()
        self._hear: list[Callable[[Sequence[UUID]], None]] = []
        self._loops = Loops("announcer")

    def listen(self, hear: Callable[[Sequence[UUID]], None]) -> None:
        """Call `hear` with all executions of this process's events, at once and not just a few of them."""
        self._hear.append(hear)

    def announce(self, kind: Kind, executions: Iterable[UUID]) -> None:
        executions = list(executions)
        for hear in self._hear:
            hear(executions)
        pending = self._pending.setdefault(kind, {})
        for execution in executions:
            if len(pending) < MOST_IDS:
                pending[execution] = None
            else:
                self._more[kind] = self._more.get(kind, 0) + 1
        self._any.set()

    async def start(self) -> None:
        self._loops.forever("publish", self._publish)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _publish(self) -> None:
        await self._any.wait()
        self._any.clear()
        pending, self._pending = self._pending, {}
        more, self._more = self._more, {}
        events = [Event(kind, list(executions), more.get(kind, 0)) for kind, executions in pending.items()]
        self._bus.publish(EVENTS, encode(events).decode())
        await asyncio.sleep(INTERVAL_S)

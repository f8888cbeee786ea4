"""Tells the bus what happened, gathered: watching costs one message per moment, not one per execution."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

import structlog

from mainspring.codec import encode
from mainspring.domain.events import Event, Kind
from mainspring.ports import EVENTS, Bus
from mainspring.service import Loops, Service

log = structlog.get_logger()

MOST_IDS = 48
"""Of each kind: four kinds of 39 bytes each fit into one NOTIFY of 8,000."""
GATHER_S = 0.02


class Announcer(Service):
    """A hint for watchers: when the bus is away, what happened meanwhile is not told again."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._pending: dict[Kind, dict[UUID, None]] = {}
        self._more: dict[Kind, int] = {}
        self._some = asyncio.Event()
        self._loops = Loops("announcer")

    def tell(self, kind: Kind, executions: Iterable[UUID]) -> None:
        pending = self._pending.setdefault(kind, {})
        for execution in executions:
            if len(pending) < MOST_IDS:
                pending[execution] = None
            else:
                self._more[kind] = self._more.get(kind, 0) + 1
        self._some.set()

    async def start(self) -> None:
        self._loops.forever("tell", self._tell_step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _tell_step(self) -> None:
        await self._some.wait()
        self._some.clear()
        pending, self._pending = self._pending, {}
        more, self._more = self._more, {}
        events = [Event(kind, list(executions), more.get(kind, 0)) for kind, executions in pending.items()]
        try:
            await self._bus.publish(EVENTS, encode(events).decode())
        except Exception as error:
            log.debug("could not tell", events=len(events), error=str(error))
        await asyncio.sleep(GATHER_S)

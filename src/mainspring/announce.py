"""Publishes execution events on the bus, batched: one message per interval, not one per execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID, uuid4

from mainspring.codec import encode
from mainspring.domain.events import Event, Kind
from mainspring.ports import EVENTS, WATCHING, Bus
from mainspring.service import Loops, Service

MOST_IDS = 48
"""Ids per kind in one message: 48 ids of 39 bytes, for four kinds, fit into the 8,000 bytes of a NOTIFY."""
INTERVAL_S = 0.02
WATCH_S = 2.0
"""How often a process that watches says so."""
REMEMBER_S = 3 * WATCH_S
"""How long the others send events to it after that."""


class Announcer(Service):
    """Announces events to live views, only while some process watches. Best effort: a lost event is not repeated.

    Watchers of this process get events without a round trip. Processes with watchers say so on the bus, and the others
    send them events while they have heard that recently.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._me = uuid4().hex
        self._pending: dict[Kind, dict[UUID, None]] = {}
        self._more: dict[Kind, int] = {}
        self._any = asyncio.Event()
        self._hear: list[Callable[[Sequence[UUID]], None]] = []
        self._watches: list[Callable[[], bool]] = []
        self._said_at = float("-inf")
        self._others_watch_until = float("-inf")
        self._loops = Loops("announcer")
        bus.subscribe(WATCHING, self._on_watching, on_gap=lambda: None)

    def listen(self, hear: Callable[[Sequence[UUID]], None]) -> None:
        """Call `hear` with all executions of this process's events, at once and not just a few of them."""
        self._hear.append(hear)

    def announce(self, kind: Kind, executions: Iterable[UUID]) -> None:
        executions = list(executions)
        for hear in self._hear:
            hear(executions)
        if not self._others_watch and not self._is_watching:
            return
        pending = self._pending.setdefault(kind, {})
        for execution in executions:
            if len(pending) < MOST_IDS:
                pending[execution] = None
            else:
                self._more[kind] = self._more.get(kind, 0) + 1
        self._any.set()

    def add_watch(self, is_watching: Callable[[], bool]) -> None:
        """Announce events while this returns true; call it before `start`."""
        self._watches.append(is_watching)

    def say_watching(self) -> bool:
        """Say that this process watches, unless it has just said so; return whether it had not."""
        now = asyncio.get_running_loop().time()
        if now - self._said_at < WATCH_S:
            return False
        self._said_at = now
        self._bus.publish(WATCHING, self._me)
        return True

    async def start(self) -> None:
        self._loops.forever("publish", self._publish)
        self._loops.forever("watch", self._watch)

    async def stop(self) -> None:
        await self._loops.stop()

    @property
    def _others_watch(self) -> bool:
        return asyncio.get_running_loop().time() < self._others_watch_until

    @property
    def _is_watching(self) -> bool:
        return any(is_watching() for is_watching in self._watches)

    def _on_watching(self, process: str) -> None:
        if process != self._me:
            self._others_watch_until = asyncio.get_running_loop().time() + REMEMBER_S

    async def _watch(self) -> None:
        if self._is_watching:
            self.say_watching()
        await asyncio.sleep(WATCH_S)

    async def _publish(self) -> None:
        await self._any.wait()
        self._any.clear()
        pending, self._pending = self._pending, {}
        more, self._more = self._more, {}
        events = [Event(kind, list(executions), more.get(kind, 0)) for kind, executions in pending.items()]
        self._bus.publish(EVENTS, encode(events).decode(), only_here=not self._others_watch)
        await asyncio.sleep(INTERVAL_S)

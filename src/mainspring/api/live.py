"""Live updates from the bus: executions as they start and end, and new log output."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from uuid import UUID

import msgspec

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.domain.events import Event
from mainspring.domain.execution import LIVE
from mainspring.service import Service
from mainspring.store import executions
from mainspring.store.db import Database
from mainspring.views import executions as execution_views
from mainspring.views import logs as log_views

MOST_PENDING = 100
REMEMBERED = 10_000
"""Of so many executions a stream knows the state that it sent last."""
POLL_S = 2.0
"""Waiting requests also poll at this interval, in case the bus misses an event."""
FIRST_POLL_S = 0.05
"""The first poll of a request with which this process begins to watch: the hint may arrive late at others."""


class LiveUpdates(Service):
    """Subscribes to events once per process and passes them to all waiting requests."""

    def __init__(self, database: Database, bus: ports.Bus, announcer: Announcer) -> None:
        self._database = database
        self._announcer = announcer
        self._watchers: set[asyncio.Queue[Event]] = set()
        self._closing = asyncio.Event()
        self._decode = msgspec.json.Decoder(list[Event]).decode
        announcer.add_watch(lambda: bool(self._watchers))
        bus.subscribe(ports.EVENTS, self._receive, on_gap=lambda: None)

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    async def start(self) -> None:
        return

    async def drain(self) -> None:
        """End every stream, so that the server can close."""
        self._closing.set()
        for watcher in self._watchers:
            self._put(watcher, Event("finished", []))

    async def stop(self) -> None:
        await self.drain()

    async def changes(self, *, tenant: int, silence_s: float = 15.0) -> AsyncIterator[list[wire.Execution]]:
        """Yield executions as they start and end; an empty list after `silence_s`, as a keep-alive.

        An event may be read when the execution has moved on, so two events may find the same state. It is sent once.
        """
        sent: OrderedDict[UUID, tuple[str, int]] = OrderedDict()
        with self._watch() as (queue, _):
            while not self.closing:
                try:
                    event = await asyncio.wait_for(queue.get(), silence_s)
                except TimeoutError:
                    yield []
                    continue
                if event.kind not in ("started", "finished") or not event.executions:
                    continue
                async with self._database.of(tenant).connection() as connection:
                    found = await executions.executions_by_id(connection, tenant=tenant, execution_ids=event.executions)
                fresh = [e for e in found if sent.get(e.execution_id) != (e.state, e.attempt)]
                for execution in fresh:
                    sent[execution.execution_id] = (execution.state, execution.attempt)
                    sent.move_to_end(execution.execution_id)
                while len(sent) > REMEMBERED:
                    sent.popitem(last=False)
                if fresh:
                    yield sorted(fresh, key=lambda e: e.finished_at or e.started_at or e.due_at)

    async def until_final(self, execution_id: UUID, *, tenant: int, wait_s: float) -> wire.Execution:
        """Return the execution when it is final or `wait_s` have passed."""
        with self._watch() as (queue, poll_s):
            deadline = asyncio.get_running_loop().time() + wait_s
            while True:
                found = await execution_views.get(self._database.of(tenant), execution_id, tenant=tenant)
                left = deadline - asyncio.get_running_loop().time()
                if found.state not in LIVE or left <= 0 or self.closing:
                    return found
                await self._event_or_timeout(queue, execution_id, min(left, poll_s))
                poll_s = POLL_S

    async def output(self, execution_id: UUID, *, tenant: int, place: str | None) -> AsyncIterator[wire.Logs]:
        """Yield log output as it arrives, until the execution is final and the log complete."""
        with self._watch() as (queue, poll_s):
            while not self.closing:
                logs = await log_views.read_logs(
                    self._database.of(tenant), execution_id, tenant=tenant, place=place, size=log_views.TAIL_BYTES
                )
                place = logs.place
                yield logs
                if logs.complete:
                    return
                if not logs.chunks:
                    await self._event_or_timeout(queue, execution_id, poll_s)
                    poll_s = POLL_S

    async def _event_or_timeout(self, queue: asyncio.Queue[Event], execution_id: UUID, wait_s: float) -> None:
        """Return at the next event of this execution, or after `wait_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (left := deadline - loop.time()) > 0 and not self.closing:
            try:
                event = await asyncio.wait_for(queue.get(), left)
            except TimeoutError:
                return
            if execution_id in event.executions or event.more:
                return

    @contextmanager
    def _watch(self) -> Iterator[tuple[asyncio.Queue[Event], float]]:
        """Yield a queue that receives events, and how long to wait for the first before the request polls."""
        queue: asyncio.Queue[Event] = asyncio.Queue(MOST_PENDING)
        self._watchers.add(queue)
        try:
            yield queue, FIRST_POLL_S if self._announcer.say_watching() else POLL_S
        finally:
            self._watchers.discard(queue)

    def _receive(self, payload: str) -> None:
        if self._watchers:
            for event in self._decode(payload):
                for watcher in self._watchers:
                    self._put(watcher, event)

    @staticmethod
    def _put(watcher: asyncio.Queue[Event], event: Event) -> None:
        if watcher.full():
            watcher.get_nowait()  # a slow watcher loses the oldest events
        watcher.put_nowait(event)

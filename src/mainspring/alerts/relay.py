"""Relays events to the event stream: at least once, in order per job, from the outbox that the database keeps.

An event leaves the outbox once the stream has stored it. If the process dies in between, the event is sent again with
the same id. While the stream is unavailable, events wait in the outbox, up to a limit: then the oldest are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from mainspring import ports
from mainspring.codec import encode
from mainspring.domain.errors import Unavailable
from mainspring.service import Loops, Service
from mainspring.store import event_outbox
from mainspring.store.db import Database
from mainspring.store.event_outbox import EventTypes
from mainspring.telemetry import metrics

log = structlog.get_logger()

BATCH = 1_000
MAX_WAITING = 1_000_000
DROPPED_AT_A_TIME = 20_000
WANTED_S = 3600.0
"""How long events are written after the last process with an event stream has ended."""
RENEW_S = 60.0
STAND_BY_S = 1.0
FALLBACK_S = 2.0
MEASURE_S = 2.0


class EventRelay(Service):
    """The relay loop of the leader. Every step may be repeated at any point."""

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        stream: ports.EventStream,
        *,
        leads: Callable[[], bool],
        most: int = MAX_WAITING,
        types: EventTypes = "all",
    ) -> None:
        self._database = database
        self._stream = stream
        self._leads = leads
        self._most = most
        self._types: EventTypes = types
        self._wake = asyncio.Event()
        self._loops = Loops("event relay")
        bus.subscribe(ports.OUTBOX, lambda _: self._wake.set(), on_gap=self._wake.set)

    async def start(self) -> None:
        await self._want()
        self._loops.forever("want", self._renew)
        self._loops.forever("relay", self._step)
        self._loops.forever("measure", self._measure)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _want(self) -> None:
        async with self._database.connection() as connection:
            await event_outbox.want_events(connection, for_s=WANTED_S, types=self._types)

    async def _renew(self) -> None:
        await asyncio.sleep(RENEW_S)
        await self._want()

    async def _step(self) -> None:
        if not self._leads():
            await asyncio.sleep(STAND_BY_S)
            return
        self._wake.clear()
        try:
            relayed = await self.relay() if self._stream.available else 0
        except Unavailable as error:
            log.warning("events.not_relayed", error=error.message)
            relayed = 0
        if relayed < BATCH:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), FALLBACK_S)

    async def relay(self) -> int:
        """Relay the oldest events; return how many. Raises Unavailable if the stream may not have them all."""
        async with self._database.connection() as connection:
            waiting = await event_outbox.next_events(connection, limit=BATCH)
        if waiting:
            await self._stream.publish([(each.key, encode(each.event)) for each in waiting])
            async with self._database.connection() as connection:
                await event_outbox.events_relayed(connection, numbers=[each.number for each in waiting])
            metrics.EVENTS_RELAYED.labels("relayed").inc(len(waiting))
        return len(waiting)

    async def _measure(self) -> None:
        if self._leads():
            await self.limit()
            async with self._database.connection() as connection:
                waiting, since_s = await event_outbox.events_waiting(connection)
            metrics.EVENTS_WAITING.set(waiting)
            metrics.EVENTS_WAITING_S.set(since_s)
        else:
            metrics.EVENTS_WAITING.set(0)
            metrics.EVENTS_WAITING_S.set(0)
        await asyncio.sleep(MEASURE_S)

    async def limit(self) -> int:
        """Drop the oldest events beyond the limit; return how many. The database must not fill up with them."""
        total = 0
        while True:
            async with self._database.connection() as connection:
                dropped = await event_outbox.drop_events(connection, most=self._most, limit=DROPPED_AT_A_TIME)
            total += dropped
            if dropped < DROPPED_AT_A_TIME:
                break
        if total:
            metrics.EVENTS_RELAYED.labels("dropped").inc(total)
            log.error("events.dropped", events=total, limit=self._most)
        return total

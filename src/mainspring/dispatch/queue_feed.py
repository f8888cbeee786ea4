"""Publishes queued executions to a queue engine, so that dispatchers need not look for them in PostgreSQL.

The leader reads each line once, behind what it published last, and publishes what it finds. It may miss executions and
publish some twice: the slow poll of every dispatcher finds the former, and the guarded claim refuses the latter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.codec import encode
from mainspring.domain.errors import Unavailable
from mainspring.service import Loops, Service
from mainspring.store import queue_feed
from mainspring.store.claims import LINE_START, Position
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

BATCH = 1_000
MAX_LINES = 200
MAX_KNOWN_LINES = 20_000
FALLBACK_S = 1.0
STAND_BY_S = 1.0
_FIRST_ID = UUID(int=0)


class QueueFeed(Service):
    """The loop of the leader that publishes what was queued, on hints."""

    def __init__(self, database: Database, bus: ports.Bus, queue: ports.Queue, *, leads: Callable[[], bool]) -> None:
        self._database = database
        self._queue = queue
        self._leads = leads
        self._hinted: dict[int, int] = {}  # lines with the lowest rank that was queued
        self._behind: dict[int, Position] = {}  # how far each line was published
        self._wake = asyncio.Event()
        self._loops = Loops("queue feed")
        bus.subscribe(ports.QUEUED, self._on_queued, on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("feed", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    def _on_queued(self, payload: str) -> None:
        line, _, rank = payload.partition(" ")
        if rank and line != "0" and self._leads():
            self._hinted[int(line)] = min(int(rank), self._hinted.get(int(line), int(rank)))
            self._wake.set()

    async def _step(self) -> None:
        if not self._leads() or not self._queue.available:
            self._hinted.clear()
            await asyncio.sleep(STAND_BY_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), FALLBACK_S)
        self._wake.clear()
        while self._hinted:
            try:
                await self.feed()
            except Unavailable as error:
                log.warning("queue.not_fed", error=error.message)
                self._hinted.clear()

    async def feed(self) -> int:
        """Publish what is queued in the hinted lines; return how many executions."""
        hinted = dict(list(self._hinted.items())[:MAX_LINES])
        for line in hinted:
            del self._hinted[line]
        lines = []
        for line, rank in hinted.items():
            behind = self._behind.get(line, LINE_START)
            lines.append((line, min(behind, (rank, _FIRST_ID)), BATCH))
        async with self._database.connection() as connection:
            found = await queue_feed.ready_executions(connection, lines=lines)
        if len(self._behind) > MAX_KNOWN_LINES:
            self._behind.clear()
        counts: dict[int, int] = {}
        for each in found:
            counts[each.line] = counts.get(each.line, 0) + 1
            self._behind[each.line] = max(self._behind.get(each.line, LINE_START), (each.rank, each.execution_id))
        for line, count in counts.items():
            if count == BATCH:  # there may be more
                self._hinted.setdefault(line, self._behind[line][0])
        await self._queue.publish([(each.priority, each.job_id, encode(each)) for each in found])
        metrics.QUEUE_RECORDS.labels("published").inc(len(found))
        return len(found)

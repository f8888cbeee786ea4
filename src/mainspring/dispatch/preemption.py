"""Executions that have waited longer than their queue's patience while the workers are full ask others to make room.

Each asks once. Whoever decides it, all dispatchers hear of it before what is freed can be given to somebody else: the
place is kept for the one that asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

import structlog

from mainspring.clock import Clock, millis
from mainspring.dispatch.lines import Line, LineBook
from mainspring.dispatch.preemption_victims import Seat, choose, is_reached
from mainspring.dispatch.reservation_cache import GRACE_S, Keeping, without
from mainspring.dispatch.reserved_capacity import Hold, Who
from mainspring.dispatch.settings import Settings
from mainspring.store import evictions, lines, queues
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.definitions import Definitions
from mainspring.store.evictions import Head, Run
from mainspring.telemetry import metrics

log = structlog.get_logger()

LOOK_S = 0.2
AGAIN_S = 1.0
"""Nobody could make room: somebody may have run long enough by then."""
MOST_LINES = 100
EACH = 20
"""So many of each line are looked at: the first may be old rather than urgent."""


class Urgency:
    """Looks for who may ask, and asks for them. Sleeps until there is work that found no worker."""

    def __init__(
        self,
        database: Database,
        book: LineBook,
        settings: Settings,
        keeping: Keeping,
        definitions: Definitions,
        *,
        kept: Callable[[UUID], int | None],
        clock: Clock,
    ) -> None:
        self._database = database
        self._book = book
        self._settings = settings
        self._keeping = keeping
        self._definitions = definitions
        self._kept = kept
        self._clock = clock
        self._look = asyncio.Event()

    def look(self) -> None:
        """Something is left over that no worker had room for."""
        self._look.set()

    async def step(self) -> None:
        await self._look.wait()
        self._look.clear()
        wait_s = await self.make_room()
        await asyncio.sleep(LOOK_S)
        if wait_s is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), max(0.0, wait_s - LOOK_S))
            self._look.set()

    async def make_room(self) -> float | None:
        """Asks for every execution that may; seconds until the next one loses its patience, if any."""
        waiting = {line.line_id: line for line in self._book.fresh if not self._is_held_back(line)}
        if not waiting or not self._keeping.preemption:
            return None
        async with self._database.connection() as connection:
            heads = await evictions.urgent_heads(connection, line_ids=_first(waiting.values()), each=EACH)
            patience = {h.execution_id: self._settings.of(waiting[h.line_id]).patience_s for h in heads}
            due = [h for h in heads if not h.asked and h.waited_s >= patience[h.execution_id]]
            if due:
                await self._ask_for(connection, due, waiting)
        left = [AGAIN_S if h in due else patience[h.execution_id] - h.waited_s for h in heads if not h.asked]
        return min(left, default=None)

    def _is_held_back(self, line: Line) -> bool:
        """By something that nobody who leaves could change."""
        return line.full or line.not_before > self._clock.monotonic() or self._settings.of(line).paused

    async def _is_limited(self, connection: Connection, line: Line, now_ms: float) -> bool:
        """The same, as the database has it: a full worker is never asked, so nobody has looked at the limits yet."""
        ids = [limit_id for limit_id in (line.limit_id, line.rate_id) if limit_id]
        keys = await lines.limit_holders(connection, tenant=line.tenant, limit_ids=ids) if ids else {}
        for key in keys.values():
            if key.per_s is None and len(key.holders) >= key.most:
                return True
            if key.next_at is not None and millis(key.next_at) > now_ms:
                return True
        if not self._settings.capped(line):
            return False
        running = await queues.count_running(connection, tenants=[line.tenant])
        return self._settings.is_full(line, running)

    async def _ask_for(self, connection: Connection, due: list[Head], waiting: dict[int, Line]) -> None:
        now_ms = float(await database_now_ms(connection))
        definitions = await self._definitions.get({(h.job_id, h.version) for h in due}, connection)
        seats = await self._seats(connection)
        asked = False
        for head in due:
            line = waiting[head.line_id]
            if await self._is_limited(connection, line, now_ms):
                continue
            ends_ms = now_ms + (self._settings.timeout_s(line, definitions[head.job_id, head.version]) + GRACE_S) * 1000
            who = Who(line.tenant, line.queue, head.job_id, head.execution_id, ends_ms, now_ms)
            chosen = choose(line.demand, who, head.priority, [s for s in seats.values() if self._may_use(s, line)])
            if chosen is not None and await self._ask(connection, head, line, *chosen):
                asked = True
                seats[chosen[0].place.session_id] = _after(chosen[0], chosen[1], head, line)
        if asked:
            await self._keeping.load(self._database)

    async def _ask(self, connection: Connection, head: Head, line: Line, seat: Seat, victims: list[Run]) -> bool:
        async with connection.transaction():
            asked = await evictions.evict(
                connection,
                tenant=line.tenant,
                urgent=(head.execution_id, head.attempt),
                session_id=seat.place.session_id,
                victims=[(run.execution_id, run.attempt) for run in victims],
            )
        if asked:
            metrics.PREEMPTIONS.inc(len(victims))
            log.info(
                "others make room",
                execution=str(head.execution_id),
                worker=seat.place.name,
                victims=[str(run.execution_id) for run in victims],
            )
        return asked

    def _may_use(self, seat: Seat, line: Line) -> bool:
        if self._kept(seat.place.session_id) not in (None, line.line_id):
            return False
        return is_reached(seat.place, tenant=line.tenant, queue=line.queue, demand=line.demand)

    async def _seats(self, connection: Connection) -> dict[UUID, Seat]:
        places = await evictions.places(connection)
        runs: dict[UUID, list[Run]] = {place.session_id: [] for place in places}
        for run in await evictions.runs_of_sessions(connection, session_ids=list(runs)):
            runs[run.session_id].append(run)
        return {
            p.session_id: Seat(p, runs[p.session_id], without(self._keeping.of(p.session_id), runs[p.session_id]))
            for p in places
        }


def _first(found: Iterable[Line]) -> list[int]:
    return [line.line_id for line in sorted(found, key=lambda line: line.after)[:MOST_LINES]]


def _after(seat: Seat, victims: list[Run], head: Head, line: Line) -> Seat:
    """The worker once these were asked: they leave, and their place is kept."""
    runs = [replace(run, leaving=True) if run in victims else run for run in seat.runs]
    slots = seat.place.slots if line.demand.exclusive else 1
    return Seat(seat.place, runs, (*seat.holds, Hold(slots, line.demand.resources, execution_id=head.execution_id)))

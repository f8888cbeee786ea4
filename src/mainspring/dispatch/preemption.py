"""Preemption: an execution that waits longer than its queue's patience evicts attempts of lower priority.

Each execution preempts at most once. Every dispatcher learns of the eviction before the freed capacity can be claimed,
so that it stays reserved for the urgent execution.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import structlog

from mainspring.clock import Clock, millis
from mainspring.dispatch.lines import KnownLines, Line
from mainspring.dispatch.preemption_victims import WorkerLoad, choose_victims, worker_can_run
from mainspring.dispatch.reservation_cache import KILL_GRACE_S, ReservationCache, still_reserved
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity
from mainspring.dispatch.session_cache import SessionCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.store import evictions, lines, queues
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.definitions import Definitions
from mainspring.store.evictions import RunningAttempt, UrgentExecution
from mainspring.telemetry import metrics

log = structlog.get_logger()

MIN_INTERVAL_S = 0.2
RETRY_S = 1.0
"""When no victim was found: by then an attempt may have reached its minimum run time."""
MAX_LINES = 100
EXECUTIONS_PER_LINE = 20
"""The first of a line may be old rather than urgent, so several are read."""


class Preemption:
    """Finds overdue executions and evicts attempts for them. Sleeps until a claim leaves work without a worker."""

    def __init__(
        self,
        database: Database,
        known: KnownLines,
        settings: DispatchSettings,
        reservations: ReservationCache,
        definitions: Definitions,
        sessions: SessionCache,
        *,
        clock: Clock,
    ) -> None:
        self._database = database
        self._known = known
        self._settings = settings
        self._reservations = reservations
        self._definitions = definitions
        self._sessions = sessions
        self._clock = clock
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Call when a claim left executions without a worker."""
        self._wake.set()

    async def step(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        wait_s = await self.preempt()
        await asyncio.sleep(MIN_INTERVAL_S)
        if wait_s is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, wait_s - MIN_INTERVAL_S))
            self._wake.set()

    async def preempt(self) -> float | None:
        """Evict for every overdue execution; return the seconds until the next one is overdue, if any."""
        waiting = {line.line_id: line for line in self._known.fresh if not self._is_held_back(line)}
        if not waiting or not self._reservations.preemption:
            return None
        async with self._database.connection() as connection:
            found = await evictions.urgent_executions(
                connection, line_ids=_first(waiting.values()), each=EXECUTIONS_PER_LINE
            )
            patience = {e.execution_id: self._settings.of(waiting[e.line_id]).patience_s for e in found}
            overdue = [e for e in found if not e.asked and e.waited_s >= patience[e.execution_id]]
            if overdue:
                await self._preempt_for(connection, overdue, waiting)
        left = [RETRY_S if e in overdue else patience[e.execution_id] - e.waited_s for e in found if not e.asked]
        return min(left, default=None)

    def _is_held_back(self, line: Line) -> bool:
        """Whether a limit, a rate or a pause holds the line back; an eviction would not change that."""
        return line.at_limit or line.not_before > self._clock.monotonic() or self._settings.of(line).paused

    async def _is_limited(self, connection: Connection, line: Line, now_ms: float) -> bool:
        """Check the limits in the database: with all workers full, no claim has checked them."""
        ids = [limit_id for limit_id in (line.limit_id, line.rate_id) if limit_id]
        keys = await lines.limit_holders(connection, tenant=line.tenant, limit_ids=ids) if ids else {}
        for key in keys.values():
            if key.per_s is None and len(key.holders) >= key.most:
                return True
            if key.next_at is not None and millis(key.next_at) > now_ms:
                return True
        if not self._settings.has_cap(line):
            return False
        running = await queues.count_running(connection, tenants=[line.tenant])
        return self._settings.cap_reached(line, running)

    async def _preempt_for(
        self, connection: Connection, overdue: list[UrgentExecution], waiting: dict[int, Line]
    ) -> None:
        now_ms = float(await database_now_ms(connection))
        definitions = await self._definitions.get({(e.job_id, e.version) for e in overdue}, connection)
        loads = await self._worker_loads(connection)
        evicted = False
        for urgent in overdue:
            line = waiting[urgent.line_id]
            if await self._is_limited(connection, line, now_ms):
                continue
            timeout_s = self._settings.timeout_s(line, definitions[urgent.job_id, urgent.version])
            ends_ms = now_ms + (timeout_s + KILL_GRACE_S) * 1000
            claimant = Claimant(line.tenant, line.queue, urgent.job_id, urgent.execution_id, ends_ms, now_ms)
            usable = [load for load in loads.values() if self._may_use(load, line)]
            chosen = choose_victims(line.demand, claimant, urgent.priority, usable)
            if chosen is not None and await self._evict(connection, urgent, line, *chosen):
                evicted = True
                loads[chosen[0].worker.session_id] = _after_eviction(*chosen, urgent, line)
        if evicted:
            await self._reservations.load(self._database)

    async def _evict(
        self,
        connection: Connection,
        urgent: UrgentExecution,
        line: Line,
        load: WorkerLoad,
        victims: list[RunningAttempt],
    ) -> bool:
        async with connection.transaction():
            evicted = await evictions.evict(
                connection,
                tenant=line.tenant,
                urgent=(urgent.execution_id, urgent.attempt),
                session_id=load.worker.session_id,
                victims=[(attempt.execution_id, attempt.attempt) for attempt in victims],
            )
        if evicted:
            metrics.PREEMPTIONS.inc(len(victims))
            log.info(
                "executions.preempted",
                execution=str(urgent.execution_id),
                worker=load.worker.name,
                victims=[str(attempt.execution_id) for attempt in victims],
            )
        return evicted

    def _may_use(self, load: WorkerLoad, line: Line) -> bool:
        if self._sessions.reserved_line(load.worker.session_id) not in (None, line.line_id):
            return False
        return worker_can_run(load.worker, tenant=line.tenant, queue=line.queue, demand=line.demand)

    async def _worker_loads(self, connection: Connection) -> dict[UUID, WorkerLoad]:
        workers = await evictions.active_workers(connection)
        running: dict[UUID, list[RunningAttempt]] = {worker.session_id: [] for worker in workers}
        for attempt in await evictions.running_attempts(connection, session_ids=list(running)):
            running[attempt.session_id].append(attempt)
        return {
            w.session_id: WorkerLoad(
                w, running[w.session_id], still_reserved(self._reservations.of(w.session_id), running[w.session_id])
            )
            for w in workers
        }


def _first(found: Iterable[Line]) -> list[int]:
    return [line.line_id for line in sorted(found, key=lambda line: line.after)[:MAX_LINES]]


def _after_eviction(load: WorkerLoad, victims: list[RunningAttempt], urgent: UrgentExecution, line: Line) -> WorkerLoad:
    """Return the worker's load once the eviction is recorded: victims leave, their capacity is reserved."""
    running = [replace(attempt, leaving=True) if attempt in victims else attempt for attempt in load.running]
    slots = load.worker.slots if line.demand.exclusive else 1
    reserved = ReservedCapacity(slots, line.demand.resources, execution_id=urgent.execution_id)
    return WorkerLoad(load.worker, running, (*load.reserved, reserved))

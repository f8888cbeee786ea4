"""Direct handoff: new executions start on workers that wait at this process, without a pass through the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import structlog

from mainspring.dispatch.assignments import Assignments
from mainspring.dispatch.claim import MAX_WORKERS, Claimer
from mainspring.dispatch.lines import KnownLines, WorkerProfile
from mainspring.dispatch.match import fill_order
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.dispatch.waiting import WaitingWorker, WaitingWorkers

log = structlog.get_logger()

MAX_COMPETING_LINES = 50
"""With more fresh lines than this, checking them all would cost more than it saves: the execution is queued."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """See ports.Reservation."""

    sessions: Sequence[UUID]
    workers: Mapping[UUID, WaitingWorker]
    assignments: Assignments

    async def assign(self, rows: Sequence[Any], connection: Any = None) -> None:
        try:
            await self.assignments.send(rows, self.workers, connection)
        except Exception:
            # The rows are committed, so the caller's request must not fail; the worker's next heartbeat returns them.
            log.exception("handoff.failed", executions=len(rows), first=str(rows[0]["execution_id"]))


class DirectHandoff:
    """See ports.DirectHandoff."""

    def __init__(
        self,
        known: KnownLines,
        settings: DispatchSettings,
        reservations: ReservationCache,
        waiting: WaitingWorkers,
        claimer: Claimer,
        assignments: Assignments,
        *,
        on_release: Callable[[], None],
    ) -> None:
        self._known = known
        self._settings = settings
        self._reservations = reservations
        self._waiting = waiting
        self._claimer = claimer
        self._assignments = assignments
        self._on_release = on_release

    @contextmanager
    def reserve(self, line_id: int, count: int, *, tenant: int) -> Iterator[Reservation]:
        slots = self.find_slots(line_id, count, tenant=tenant)
        workers = {worker.session.session_id: worker for worker in slots}
        reserved = Counter(slots)
        for worker, n in reserved.items():
            self._waiting.reserve(worker, n)
        try:
            yield Reservation([worker.session.session_id for worker in slots], workers, self._assignments)
        finally:
            for worker, n in reserved.items():
                self._waiting.release(worker, n)
            if reserved:
                self._on_release()

    def find_slots(self, line_id: int, count: int, *, tenant: int) -> list[WaitingWorker]:
        """Return a worker for each of `count` executions, or fewer; none if anything queued could claim them."""
        line = self._known.get(line_id)
        if line is None or line.tenant != tenant or not self._claimer.needs_only_slot(line):
            return []
        if self._known.unknown or self._settings.stale or self._waiting.closed:
            return []
        if self._reservations or self._settings.of(line).paused:
            return []
        serving = [profile for profile in self._waiting.free if line.served_by(profile)]
        if self._has_competition(serving):
            return []
        free = (worker for profile in serving for worker in self._waiting.free[profile] if not worker.in_claim)
        workers = list(islice(free, MAX_WORKERS))
        order = fill_order([w.capacity for w in workers], count, packs=self._settings.of(line).packs(line.demand))
        return [workers[n - 1] for n in order]

    def _has_competition(self, profiles: list[WorkerProfile]) -> bool:
        """Whether executions that these workers could run may be queued."""
        fresh = self._known.fresh
        if len(fresh) > MAX_COMPETING_LINES:
            return True
        return any(line.served_by(profile) for line in fresh if not line.at_limit for profile in profiles)

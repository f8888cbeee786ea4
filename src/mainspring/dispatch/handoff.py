"""Direct handoff: a new execution starts on a worker that polls this process, without a pass through the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import structlog

from mainspring.dispatch.assignments import Assignments
from mainspring.dispatch.claim import MAX_WORKERS, Claimer
from mainspring.dispatch.lines import KnownLines, WorkerProfile
from mainspring.dispatch.match import fill_order
from mainspring.dispatch.polls import OpenPoll, OpenPolls
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.settings import DispatchSettings

log = structlog.get_logger()

MAX_COMPETING_LINES = 50
"""With more fresh lines than this, checking them all would cost more than it saves: the execution is queued."""


@dataclass(frozen=True, slots=True)
class IdleWorker:
    """See ports.IdleWorker."""

    session_id: UUID
    assignments: Assignments

    async def assign(self, row: Any) -> None:
        try:
            await self.assignments.send([row])
        except Exception:
            # The row is committed, so the caller's request must not fail; the worker's next heartbeat returns it.
            log.exception("handoff.failed", execution=str(row["execution_id"]))


class DirectHandoff:
    """See ports.DirectHandoff."""

    def __init__(
        self,
        known: KnownLines,
        settings: DispatchSettings,
        reservations: ReservationCache,
        polls: OpenPolls,
        claimer: Claimer,
        assignments: Assignments,
        claiming: asyncio.Lock,
    ) -> None:
        self._known = known
        self._settings = settings
        self._reservations = reservations
        self._polls = polls
        self._claimer = claimer
        self._assignments = assignments
        self._claiming = claiming

    @asynccontextmanager
    async def reserve_worker(self, line_id: int, *, tenant: int) -> AsyncIterator[IdleWorker | None]:
        poll = None if self._claiming.locked() else self._find_worker(line_id, tenant)
        if poll is None:
            yield None
            return
        async with self._claiming:
            session_id = poll.capacity.session_id
            self._polls.offered = {session_id: poll}
            yield IdleWorker(session_id, self._assignments)

    def _find_worker(self, line_id: int, tenant: int) -> OpenPoll | None:
        """Return a worker for an execution of this line, unless anything queued could claim that worker."""
        line = self._known.get(line_id)
        if line is None or line.tenant != tenant or not self._claimer.needs_only_slot(line):
            return None
        if self._known.unknown or self._settings.stale or self._polls.closed:
            return None
        if self._reservations or self._settings.of(line).paused:
            return None
        serving = [profile for profile in self._polls.free if line.served_by(profile)]
        if self._has_competition(serving):
            return None
        polls = list(islice((poll for profile in serving for poll in self._polls.free[profile]), MAX_WORKERS))
        order = fill_order([p.capacity for p in polls], 1, packs=self._settings.of(line).packs(line.demand))
        return polls[order[0] - 1] if order else None

    def _has_competition(self, profiles: list[WorkerProfile]) -> bool:
        """Whether executions that these workers could run may be queued."""
        fresh = self._known.fresh
        if len(fresh) > MAX_COMPETING_LINES:
            return True
        return any(line.served_by(profile) for line in fresh if not line.at_limit for profile in profiles)

"""Reserves a worker for a line whose demand has long been too large for the free capacity of any worker.

Otherwise small executions, which always fit, would keep a large one waiting forever.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from mainspring.clock import Clock
from mainspring.dispatch.lines import KnownLines, Line
from mainspring.dispatch.session_cache import SessionCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.dispatch.waiting import WaitingWorkers


class StarvationGuard:
    def __init__(
        self,
        known: KnownLines,
        settings: DispatchSettings,
        waiting: WaitingWorkers,
        sessions: SessionCache,
        *,
        clock: Clock,
    ) -> None:
        self._known = known
        self._settings = settings
        self._waiting = waiting
        self._sessions = sessions
        self._clock = clock
        self._since: dict[Line, float] = {}
        self._reserved: dict[Line, UUID] = {}

    def update(self) -> None:
        """Release workers that are no longer needed, and reserve one for each starving line."""
        unserved = {line for line in self._known.fresh if not line.demand.plain and self._fits_nowhere(line)}
        for line in [line for line in self._reserved if line not in unserved]:
            self._reserve(self._reserved.pop(line), None)
        for line in self._starving(unserved):
            able = [
                worker
                for worker in self._waiting.by_session.values()
                if worker.profile.reserved_line is None and worker.could_run(line)
            ]
            if able:
                chosen = max(able, key=lambda worker: worker.capacity.free).session.session_id
                self._reserved[line] = chosen
                self._reserve(chosen, line)

    def forget(self, session_id: UUID) -> None:
        self._reserved = {line: session for line, session in self._reserved.items() if session != session_id}

    def _starving(self, unserved: Collection[Line]) -> list[Line]:
        """Return the lines that have fitted no worker for longer than their queue's patience."""
        now = self._clock.monotonic()
        self._since = {line: self._since.get(line, now) for line in unserved}
        return [
            line
            for line, since in self._since.items()
            if now - since >= self._settings.of(line).patience_s and line not in self._reserved
        ]

    def _fits_nowhere(self, line: Line) -> bool:
        if line.at_limit or self._settings.of(line).paused:
            return False
        return not any(
            line.served_by(profile) and self._waiting.has_capacity(profile, line) for profile in self._waiting.free
        )

    def _reserve(self, session_id: UUID, line: Line | None) -> None:
        profile = self._sessions.reserve(session_id, line)
        if profile is not None:
            self._waiting.change_profile(session_id, profile)

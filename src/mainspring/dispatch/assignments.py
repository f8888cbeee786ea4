"""Sends claimed executions to their workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.clock import Clock, millis
from mainspring.dispatch.lines import KnownLines
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.dispatch.waiting import WaitingWorker, WaitingWorkers
from mainspring.domain.job import Definition
from mainspring.store import claims
from mainspring.store.definitions import Definitions, Version
from mainspring.telemetry import metrics


class Assignments:
    def __init__(
        self,
        definitions: Definitions,
        known: KnownLines,
        settings: DispatchSettings,
        reservations: ReservationCache,
        waiting: WaitingWorkers,
        announcer: Announcer,
        *,
        clock: Clock,
    ) -> None:
        self._definitions = definitions
        self._known = known
        self._settings = settings
        self._reservations = reservations
        self._waiting = waiting
        self._announcer = announcer
        self._clock = clock

    async def send(self, rows: Sequence[claims.Claimed], workers: Mapping[UUID, WaitingWorker]) -> None:
        """Send rows, committed as running, to the workers of their sessions."""
        if self._reservations:
            self._reservations.release_started(rows)
        versions = {(row[1], row[2]) for row in rows}
        definitions = await self._definitions.get(versions)
        names = {version: f"{version[0]}.{version[1]}" for version in versions}
        if self._settings.limits_duration:
            self._limit_timeouts(rows, definitions, names)
        now_ms = self._clock.now_ms()
        given: dict[UUID, list[wire.Assignment]] = {}
        used: dict[UUID, dict[str, Definition]] = {}
        for execution_id, job_id, version, attempt, session_id, fire_at, _, params, *_ in rows:
            name = names[job_id, version]
            if session_id not in given:
                given[session_id], used[session_id] = [], {}
            used[session_id][name] = definitions[job_id, version]
            given[session_id].append(wire.Assignment(execution_id, attempt, name, job_id, fire_at, params))
        for session_id, executions in given.items():
            demanding = any(each.resources or each.exclusive for each in used[session_id].values())
            self._waiting.deliver(workers[session_id], executions, used[session_id], demanding=demanding)
        self._announcer.announce("started", [row[0] for row in rows])
        metrics.START_LATENCY.observe(max(0.0, (now_ms - millis(rows[0]["due_at"])) / 1000))

    def _limit_timeouts(
        self, rows: Sequence[claims.Claimed], definitions: dict[Version, Definition], names: dict[Version, str]
    ) -> None:
        """Cut timeouts to what the queues allow now. Workers cache definitions by name, so the name changes too."""
        for row in rows:
            version = row["job_id"], row["version"]
            definition = definitions[version]
            timeout_s = self._settings.timeout_s(self._known.get(row["line_id"]), definition)
            if timeout_s != definition.timeout_s:
                definitions[version] = msgspec.structs.replace(definition, timeout_s=timeout_s, timed=True)
                names[version] = f"{names[version]}.{timeout_s:g}"

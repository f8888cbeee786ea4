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
from mainspring.domain.attempt_credential import AttemptCredentials
from mainspring.domain.job import Definition, kind_of
from mainspring.domain.placement.isolation import raised
from mainspring.store import claims
from mainspring.store.db import Connection
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
        self.credentials = AttemptCredentials()

    async def send(
        self,
        rows: Sequence[claims.Claimed],
        workers: Mapping[UUID, WaitingWorker],
        connection: Connection | None = None,
    ) -> None:
        """Send rows, committed as running, to the workers of their sessions."""
        if self._reservations:
            self._reservations.release_started(rows)
        versions = {(row[1], row[2]) for row in rows}
        definitions = await self._definitions.get(versions, connection)
        names = {version: f"{version[0]}.{version[1]}" for version in versions}
        if self._settings.limits_duration:
            self._limit_timeouts(rows, definitions, names)
        if self._settings.sets_isolation:
            self._raise_isolation(rows, definitions, names)
        now_ms = self._clock.now_ms()
        for session_id, theirs in _by_session(rows).items():
            worker = workers[session_id]
            has_key = worker.session.proof.key_digest is not None
            credential = self.credentials.of_session(session_id).make if has_key else _no_credential
            executions = [
                wire.Assignment(id_, attempt, names[job, version], job, at, params, credential(id_, attempt))
                for id_, job, version, attempt, _, at, _, params, *_ in theirs
            ]
            theirs_only = versions if len(theirs) == len(rows) else {(row[1], row[2]) for row in theirs}
            used = {names[version]: definitions[version] for version in theirs_only}
            demanding = any(each.resources or each.exclusive for each in used.values())
            self._waiting.deliver(worker, executions, used, demanding=demanding)
        self._announcer.announce("started", [row[0] for row in rows])
        metrics.START_LATENCY.observe(max(0.0, (now_ms - millis(rows[0]["due_at"])) / 1000))

    def _raise_isolation(
        self, rows: Sequence[claims.Claimed], definitions: dict[Version, Definition], names: dict[Version, str]
    ) -> None:
        """Raise sandboxes to what the queues require now."""
        for row in rows:
            version = row["job_id"], row["version"]
            definition, line = definitions[version], self._known.get(row["line_id"])
            if line is None:
                continue
            minimum = self._settings.min_isolation(line.tenant, line.queue)
            sandbox = raised(definition.sandbox, kind_of(definition.task), minimum)
            if sandbox != definition.sandbox:
                definitions[version] = msgspec.structs.replace(definition, sandbox=sandbox)
                names[version] = f"{names[version]}.{minimum}"

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


def _by_session(rows: Sequence[claims.Claimed]) -> Mapping[UUID, Sequence[claims.Claimed]]:
    """Group rows by their session. Most claims are for one."""
    sessions = {row[4] for row in rows}
    if len(sessions) == 1:
        return {sessions.pop(): rows}
    found: dict[UUID, list[claims.Claimed]] = {}
    for row in rows:
        found.setdefault(row[4], []).append(row)
    return found


def _no_credential(_: UUID, __: int) -> str:
    """For sessions of workers that know no credentials."""
    return ""

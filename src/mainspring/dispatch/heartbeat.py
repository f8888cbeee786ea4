"""Processes heartbeats of sessions in batches: ten thousand workers take a few statements a second.

A heartbeat renews the session's lease and compares the executions it reports with the database. Executions that the
session has never received are given to other workers (the answer of a poll was lost), and executions that are no
longer its own are returned for it to drop.

An execution that is missing from a heartbeat may still be on its way: in a process that was stopped, or in a stream
that stalls. So a worker that takes `disclaim` is asked for it as for a preempted one. It reports that it has not begun
the attempt, and from then on refuses it; only then another worker gets the execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.batch import Batcher
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.sessions import Heartbeat, RunningExecution

UNKNOWN_AFTER_S = 10.0
"""An execution that started this long ago and is missing from the heartbeat never reached the worker."""
BATCH = 500
GATHER_S = 0.02
"""No worker waits for the answer. Of a large fleet, forty heartbeats arrive in this time and share two statements."""


@dataclass(slots=True)
class Renewed:
    """The answer to a heartbeat. `strays` are (execution, attempt) pairs that seem not to have reached the worker.

    A worker that disclaims has them among `preempts`.
    """

    lease_s: float
    cancels: list[UUID] = field(default_factory=list)
    gone: list[UUID] = field(default_factory=list)
    preempts: list[tuple[UUID, int]] = field(default_factory=list)
    strays: list[tuple[UUID, int]] = field(default_factory=list)


class Heartbeats:
    """Renews leases; heartbeats that arrive while one batch is written form the next."""

    def __init__(self, database: Database, *, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self._batcher: Batcher[Heartbeat, Renewed | None] = Batcher(self._renew, max_items=BATCH, gather_s=GATHER_S)

    async def beat(self, beat: Heartbeat) -> Renewed | None:
        """Renew the session's lease. None: the session has ended."""
        return await self._batcher.submit(beat)

    async def _renew(self, beats: list[Heartbeat]) -> list[Renewed | None]:
        async with self._database.connection() as connection:
            leases = await sessions.renew_sessions(connection, beats=beats, lease_s=self._lease_s)
            found = await sessions.running_of_sessions(
                connection, session_ids=list(leases), old_after_s=UNKNOWN_AFTER_S
            )
        running: dict[UUID, list[RunningExecution]] = {}
        for row in found:
            running.setdefault(row.session_id, []).append(row)
        return [
            compare(beat, leases[beat.session_id], running.get(beat.session_id, ()))
            if beat.session_id in leases
            else None
            for beat in beats
        ]


def compare(beat: Heartbeat, lease_s: float, running: Sequence[RunningExecution]) -> Renewed:
    """Compare the executions a session reports with those the database has for it."""
    reported, assigned = set(beat.running), {row.execution_id for row in running}
    missing = [row for row in running if row.old and row.execution_id not in reported]
    asked = {row.execution_id for row in missing if row.disclaims}
    return Renewed(
        lease_s=lease_s,
        cancels=[row.execution_id for row in running if row.cancelling],
        gone=[execution for execution in beat.running if execution not in assigned],
        preempts=[(row.execution_id, row.attempt) for row in running if row.leaving or row.execution_id in asked],
        strays=[(row.execution_id, row.attempt) for row in missing if not row.disclaims],
    )

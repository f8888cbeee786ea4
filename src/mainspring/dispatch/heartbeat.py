"""Heartbeats of sessions, taken in together: ten thousand workers are a few statements a second.

A heartbeat renews the lease and compares what the session says it runs with what we know: what it never heard of is
given to others (the answer of a poll was lost on the way), and what is no longer its own it may let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.batch import Batcher
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.sessions import Heartbeat, Running

STRAY_AFTER_S = 10.0
BATCH = 500
GATHER_S = 0.02
"""Nobody waits for a heartbeat's answer; of a fleet's, forty come in this time and share two statements."""


@dataclass(slots=True)
class Renewed:
    """The lease from now on; what to end, what to forget, and (execution, attempt) to make room or never heard of."""

    lease_s: float
    cancels: list[UUID] = field(default_factory=list)
    gone: list[UUID] = field(default_factory=list)
    preempts: list[tuple[UUID, int]] = field(default_factory=list)
    strays: list[tuple[UUID, int]] = field(default_factory=list)


class Heartbeats:
    """Takes heartbeats in. Those that come while one batch is written make up the next."""

    def __init__(self, database: Database, *, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self._batcher: Batcher[Heartbeat, Renewed | None] = Batcher(self._renew, max_items=BATCH, gather_s=GATHER_S)

    async def beat(self, beat: Heartbeat) -> Renewed | None:
        """None: the session has ended."""
        return await self._batcher.submit(beat)

    async def _renew(self, beats: list[Heartbeat]) -> list[Renewed | None]:
        async with self._database.connection() as connection:
            leases = await sessions.renew_sessions(connection, beats=beats, lease_s=self._lease_s)
            found = await sessions.running_of_sessions(connection, session_ids=list(leases), old_after_s=STRAY_AFTER_S)
        running: dict[UUID, list[Running]] = {}
        for row in found:
            running.setdefault(row.session_id, []).append(row)
        return [
            compare(beat, leases[beat.session_id], running.get(beat.session_id, ()))
            if beat.session_id in leases
            else None
            for beat in beats
        ]


def compare(beat: Heartbeat, lease_s: float, running: Sequence[Running]) -> Renewed:
    """What a session must hear, by what it says it runs and what we know."""
    known, ours = set(beat.running), {row.execution_id for row in running}
    return Renewed(
        lease_s=lease_s,
        cancels=[row.execution_id for row in running if row.cancelling],
        gone=[execution for execution in beat.running if execution not in ours],
        preempts=[(row.execution_id, row.attempt) for row in running if row.leaving],
        strays=[(row.execution_id, row.attempt) for row in running if row.old and row.execution_id not in known],
    )

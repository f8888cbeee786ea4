"""Reserved capacity by session, cached by a dispatcher and applied to its claims.

Reloaded with the settings. Without reservations and evictions the cache is empty, and claims skip it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from mainspring.dispatch.lines import Line
from mainspring.dispatch.match import FreeCapacity, LineCandidates
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity, consume
from mainspring.dispatch.settings import DispatchSettings
from mainspring.domain.placement.reservation import lay_out
from mainspring.store import claims, evictions, reservations
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.definitions import Definitions
from mainspring.store.evictions import RunningAttempt

EVICTION_RESERVES_S = 60.0
"""How long freed capacity stays reserved for the urgent execution; after that, others may use it."""
KILL_GRACE_S = 11.0
"""An attempt has ended for certain this long after its timeout."""
LOOK_AHEAD = 100
"""Executions read per line where capacity is reserved: the first may have to wait while later ones can start."""


class ReservationCache:
    def __init__(self, definitions: Definitions, settings: DispatchSettings) -> None:
        self.preemption = False  # whether any job is preemptible
        self._reserved: dict[UUID, tuple[ReservedCapacity, ...]] = {}
        self._definitions = definitions
        self._settings = settings

    def __bool__(self) -> bool:
        return bool(self._reserved)

    def of(self, session_id: UUID) -> tuple[ReservedCapacity, ...]:
        return self._reserved.get(session_id, ())

    async def load(self, database: Database) -> None:
        async with database.connection() as connection:
            self.preemption = await evictions.any_preemptible(connection)
            evicted = (
                await evictions.open_evictions(connection, within_s=EVICTION_RESERVES_S) if self.preemption else []
            )
            reserved = [row.reservation for row in await reservations.open_reservations(connection, tenant=None)]
            workers = await evictions.active_workers(connection) if reserved else []
        found: dict[UUID, tuple[ReservedCapacity, ...]] = {}
        layout = lay_out(reserved, workers)
        for one in reserved:
            for session_id, n in layout[one.reservation_id].items():
                amounts = {name: amount * n for name, amount in one.resources.items()}
                part = ReservedCapacity(n, amounts, one.start_ms, one.end_ms, one.tenant, one.queue, one.job_id)
                found[session_id] = (*found.get(session_id, ()), part)
        for urgent_id, session_id, demand, slots in evicted:
            part = ReservedCapacity(slots if demand.exclusive else 1, demand.resources, execution_id=urgent_id)
            found[session_id] = (*found.get(session_id, ()), part)
        self._reserved = found

    def release_started(self, rows: Iterable[Claimed]) -> None:
        """Drop the capacity that was reserved for exactly these executions."""
        started = {row["execution_id"] for row in rows}
        left = {
            session: tuple(one for one in reserved if one.execution_id not in started)
            for session, reserved in self._reserved.items()
        }
        self._reserved = {session: reserved for session, reserved in left.items() if reserved}

    async def split(
        self, connection: Connection, candidates: Sequence[LineCandidates], lines: Mapping[int, Line]
    ) -> list[LineCandidates]:
        """Split lines into parts whose executions may use the same capacity.

        Lines whose workers have no reserved capacity stay whole.
        """
        workers = {w.session_id: w for line in candidates for w in line.workers if w.reserved}
        affected = [line for line in candidates if line.rows and any(w.reserved for w in line.workers)]
        if not affected:
            return list(candidates)
        await _subtract_running(connection, workers)
        now_ms = float(await database_now_ms(connection))
        ids = [execution_id for line in affected for _, execution_id in line.rows]
        jobs = await claims.jobs_of_executions(connection, execution_ids=ids)
        definitions = await self._definitions.get(set(jobs.values()), connection)
        urgent = {one.execution_id for worker in workers.values() for one in worker.reserved}
        parts = [line for line in candidates if line not in affected]
        for whole in affected:
            line = lines[whole.line_id]
            groups: dict[tuple[UUID, int, UUID | None], list[tuple[int, UUID]]] = {}
            for row in whole.rows:
                if (job := jobs.get(row[1])) is not None:
                    groups.setdefault((*job, row[1] if row[1] in urgent else None), []).append(row)
            for (job_id, version, execution_id), rows in groups.items():
                timeout_s = self._settings.timeout_s(line, definitions[job_id, version])
                ends_ms = now_ms + (timeout_s + KILL_GRACE_S) * 1000
                claimant = Claimant(line.tenant, line.queue, job_id, execution_id, ends_ms, now_ms)
                more = whole.more and rows[-1] == whole.rows[-1]
                parts.append(replace(whole, rows=rows, claimant=claimant, more=more))
        return parts


async def _subtract_running(connection: Connection, workers: Mapping[UUID, FreeCapacity]) -> None:
    """Reduce reserved capacity by the executions that already use it."""
    reserved = [s for s, worker in workers.items() if any(one.execution_id is None for one in worker.reserved)]
    for running in await evictions.running_attempts(connection, session_ids=reserved) if reserved else ():
        workers[running.session_id].reserved = still_reserved(workers[running.session_id].reserved, [running])


def still_reserved(
    reserved: Sequence[ReservedCapacity], running: Iterable[RunningAttempt]
) -> tuple[ReservedCapacity, ...]:
    """Return what stays reserved while these attempts run."""
    for attempt in running:
        reserved = consume(reserved, attempt.demand, attempt)
    return tuple(reserved)


def merge_parts(whole: LineCandidates, parts: Sequence[LineCandidates]) -> None:
    """Set the result of a line from its parts: it counts as assigned up to the first row without a worker."""
    given = {row for part in parts for row in part.rows[: part.assigned]}
    whole.assigned = next((n for n, row in enumerate(whole.rows) if row not in given), len(whole.rows))
    if any(part.stop == "limit" for part in parts):
        whole.stop = "limit"
    elif whole.more or any(part.stop == "more" for part in parts):
        whole.stop = "more"
    elif len(given) < len(whole.rows):
        whole.stop = "no worker"

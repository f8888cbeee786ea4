"""What is kept on workers, as a dispatcher knows it: read anew with the settings, and weighed when it claims.

Without reservations and evictions there is nothing here, and claiming does not ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from mainspring.dispatch.lines import Line
from mainspring.dispatch.match import Pending, Room
from mainspring.dispatch.reserved_capacity import Hold, Who, used
from mainspring.dispatch.settings import Settings
from mainspring.domain.placement.reservation import lay_out
from mainspring.store import claims, evictions, reservations
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.definitions import Definitions
from mainspring.store.evictions import Run

MADE_S = 60.0
"""A place that was made is kept so long; what has not taken it by then waits for something else."""
GRACE_S = 11.0
"""An attempt that must end is gone so much after its timeout."""
LOOK_AHEAD = 100
"""Where something is kept, the first of a line may have to wait and others not: so far is looked for those."""


class Keeping:
    """Holds by session."""

    def __init__(self, definitions: Definitions, settings: Settings) -> None:
        self.preemption = False  # whether any job makes room for others
        self._holds: dict[UUID, tuple[Hold, ...]] = {}
        self._definitions = definitions
        self._settings = settings

    def __bool__(self) -> bool:
        return bool(self._holds)

    def of(self, session_id: UUID) -> tuple[Hold, ...]:
        return self._holds.get(session_id, ())

    async def load(self, database: Database) -> None:
        async with database.connection() as connection:
            self.preemption = await evictions.any_preemptible(connection)
            made = await evictions.open_evictions(connection, within_s=MADE_S) if self.preemption else []
            reserved = [row.reservation for row in await reservations.open_reservations(connection, tenant=None)]
            places = await evictions.places(connection) if reserved else []
        holds: dict[UUID, tuple[Hold, ...]] = {}
        layout = lay_out(reserved, places)
        for one in reserved:
            for session_id, n in layout[one.reservation_id].items():
                amounts = {name: amount * n for name, amount in one.resources.items()}
                hold = Hold(n, amounts, one.start_ms, one.end_ms, one.tenant, one.queue, one.job_id)
                holds[session_id] = (*holds.get(session_id, ()), hold)
        for urgent_id, session_id, demand, slots in made:
            hold = Hold(slots if demand.exclusive else 1, demand.resources, execution_id=urgent_id)
            holds[session_id] = (*holds.get(session_id, ()), hold)
        self._holds = holds

    def started(self, rows: Iterable[Claimed]) -> None:
        """Places that were made for these are taken."""
        begun = {row["execution_id"] for row in rows}
        left = {
            session: tuple(hold for hold in holds if hold.execution_id not in begun)
            for session, holds in self._holds.items()
        }
        self._holds = {session: holds for session, holds in left.items() if holds}

    async def split(
        self, connection: Connection, pending: Sequence[Pending], lines: Mapping[int, Line]
    ) -> list[Pending]:
        """Lines in parts whose executions all may use the same places; those that can't meet a hold stay whole."""
        rooms = {room.session_id: room for p in pending for room in p.rooms if room.holds}
        touched = [p for p in pending if p.rows and any(room.holds for room in p.rooms)]
        if not touched:
            return list(pending)
        await _count_used(connection, rooms)
        now_ms = float(await database_now_ms(connection))
        jobs = await claims.jobs_of(connection, execution_ids=[e for p in touched for _, e in p.rows])
        definitions = await self._definitions.get(set(jobs.values()), connection)
        awaited = {hold.execution_id for room in rooms.values() for hold in room.holds}
        parts = [p for p in pending if p not in touched]
        for p in touched:
            line = lines[p.line_id]
            groups: dict[tuple[UUID, int, UUID | None], list[tuple[int, UUID]]] = {}
            for row in p.rows:
                if (job := jobs.get(row[1])) is not None:
                    groups.setdefault((*job, row[1] if row[1] in awaited else None), []).append(row)
            for (job_id, version, execution_id), rows in groups.items():
                timeout_s = self._settings.timeout_s(line, definitions[job_id, version])
                ends_ms = now_ms + (timeout_s + GRACE_S) * 1000
                who = Who(line.tenant, line.queue, job_id, execution_id, ends_ms, now_ms)
                parts.append(replace(p, rows=rows, who=who, more=p.more and rows[-1] == p.rows[-1]))
        return parts


async def _count_used(connection: Connection, rooms: Mapping[UUID, Room]) -> None:
    """What is reserved and in use by whom it is for need not be kept any more."""
    reserved = [s for s, room in rooms.items() if any(hold.execution_id is None for hold in room.holds)]
    for run in await evictions.runs_of_sessions(connection, session_ids=reserved) if reserved else ():
        rooms[run.session_id].holds = without(rooms[run.session_id].holds, [run])


def without(holds: Sequence[Hold], runs: Iterable[Run]) -> tuple[Hold, ...]:
    """What is still to be kept while these run."""
    for run in runs:
        holds = used(
            holds, run.demand, tenant=run.tenant, queue=run.queue, job_id=run.job_id, execution_id=run.execution_id
        )
    return tuple(holds)


def join(whole: Pending, parts: Sequence[Pending]) -> None:
    """What became of a line, by what became of its parts: it was passed as far as everything was given a worker."""
    given = {row for part in parts for row in part.rows[: part.tried]}
    whole.tried = next((n for n, row in enumerate(whole.rows) if row not in given), len(whole.rows))
    if any(part.stop == "full" for part in parts):
        whole.stop = "full"
    elif whole.more or any(part.stop == "more" for part in parts):
        whole.stop = "more"
    elif len(given) < len(whole.rows):
        whole.stop = "no room"

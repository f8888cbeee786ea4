"""What happens to runs by themselves: those that are due begin, waits and approvals end, time runs out.

Nothing here is asked while nothing is due: the next instant is an index away, and everything else comes as a notice.
"""

from __future__ import annotations

import contextlib
from uuid import UUID

import structlog

from mainspring.announce import Announcer
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.workflow.run import ENGINE_SESSION, ExecutionEnd
from mainspring.intake import dependencies
from mainspring.intake import runs as run_actions
from mainspring.store import needs, run_steps, runs
from mainspring.store.db import CONFLICTS, Database

log = structlog.get_logger()

BATCH = 200
AT_ONCE = 20
"""So many runs begin in one transaction."""


class WorkflowTimers:
    """Tends the runs of all tenants; done by one scheduler at a time, and repeatable at any point."""

    def __init__(self, database: Database, announcer: Announcer | None = None) -> None:
        self._database = database
        self._runs = run_actions.RunTransactions(database, announcer=announcer)
        self.watches = False  # some job needs another, so that the end of any execution may matter
        self._lines: set[int] = set()
        self._newest = 0

    def concerns(self, payload: str) -> bool:
        """Whether a notice of something queued may be about a run: its line is a workflow's, or not known yet."""
        line = payload.partition(" ")[0]
        return line.isdigit() and (int(line) in self._lines or int(line) > self._newest)

    async def look(self) -> float | None:
        """Everything that is due; returns the seconds until something will be."""
        await self._start_due()
        async with self._database.connection() as connection:
            self.watches = await needs.has_needs(connection)
        if self.watches:
            await dependencies.execute_ready(self._database)
            await dependencies.release_waiting(self._database)
        async with self._database.connection() as connection:
            asked = await runs.runs_to_cancel(connection, limit=BATCH)
            late = await runs.timed_out_runs(connection, limit=BATCH)
            due = await run_steps.due_steps(connection, limit=BATCH)
        for run_id, tenant, reason in asked:
            await self._cancel(run_id, tenant, "overlap" if reason == "overlap" else reason, "cancelled")
        for run_id, tenant in late:
            await self._cancel(run_id, tenant, "", "timed_out")
        for place, tenant in due:
            with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
                await run_actions.end_wait(self._runs, place, tenant=tenant)
        async with self._database.connection() as connection:
            self._lines, self._newest = await runs.workflow_lines(connection)
            return await runs.next_run_timer_s(connection)

    async def sweep(self) -> None:
        """The net: what an older program or a dying one left half-done."""
        await self._tell_strays()
        async with self._database.connection() as connection:
            half = await runs.half_cancelled_runs(connection, limit=BATCH)
        for run_id, tenant in half:
            with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
                await run_actions.finish_cancel(self._runs, run_id, tenant=tenant)

    async def _tell_strays(self) -> None:
        """Portion by portion; should one run stand in the way of the others, each is told by itself."""
        while True:
            async with self._database.connection() as connection:
                stray = [ExecutionEnd(*row) for row in await run_steps.unadvanced_steps(connection, limit=BATCH)]
            if not stray:
                return
            log.warning("steps had ended without their runs", steps=len(stray))
            try:
                await run_actions.advance_ended(self._runs, stray)
            except Exception:
                for ending in stray:
                    try:
                        await run_actions.advance_ended(self._runs, [ending])
                    except Exception:
                        log.exception("a run can't be moved on", execution=str(ending.execution_id))
                return
            if len(stray) < BATCH:
                return

    async def _start_due(self) -> None:
        while True:
            async with self._database.connection() as connection:
                found = await runs.startable_runs(connection, limit=BATCH)
            by_key: dict[int | None, list[UUID]] = {}
            for execution_id, limit_id in found:
                by_key.setdefault(limit_id, []).append(execution_id)
            begun = 0
            for limit_id, ids in by_key.items():
                for first in range(0, len(ids), AT_ONCE):
                    begun += await run_actions.start_due(self._runs, ids[first : first + AT_ONCE], limit_id)
            if begun < BATCH:
                return

    async def _cancel(self, run_id: UUID, tenant: int, reason: str, ends_as: str) -> None:
        with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
            await run_actions.cancel(self._runs, run_id, tenant=tenant, by="the system", reason=reason, ends_as=ends_as)


def is_for_a_run(payload: str) -> bool:
    """Whether a notice to cancel is about a run, and not a session."""
    return payload == str(ENGINE_SESSION)

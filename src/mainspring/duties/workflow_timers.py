"""Workflow timers: starts due runs, ends waits and approvals, and times out runs. A duty of the leading scheduler.

While nothing is due it sends no query: an index gives the next instant, and notifications report everything else.
"""

from __future__ import annotations

import contextlib
from uuid import UUID

import structlog

from mainspring.announce import Announcer
from mainspring.domain.errors import MAX_MESSAGE_CHARS, Conflict, NotFound, clipped
from mainspring.domain.workflow.run import ENGINE_SESSION, ExecutionEnd, StepRef
from mainspring.intake import dependencies
from mainspring.intake import runs as run_actions
from mainspring.store import needs, run_steps, runs
from mainspring.store.db import AWAY, CONFLICTS, Database

log = structlog.get_logger()

BATCH = 200
"""Rows read by one query."""
STARTS_PER_TRANSACTION = 20


class WorkflowTimers:
    """Handles all that is due in runs of all tenants. Every step can be repeated at any point."""

    def __init__(self, database: Database, announcer: Announcer | None = None) -> None:
        self._database = database
        self._runs = run_actions.RunTransactions(database, announcer=announcer)
        self.has_needs = False  # some job needs another, so the end of any execution may release one
        self._lines: set[int] = set()
        self._newest_line = 0

    def concerns_a_run(self, payload: str) -> bool:
        """Return whether a `queued` notification may be about a run: its line is a workflow's, or unknown here."""
        line = payload.partition(" ")[0]
        return line.isdigit() and (int(line) in self._lines or int(line) > self._newest_line)

    async def run_due(self) -> float | None:
        """Handle everything that is due; return the seconds until the next timer."""
        await self._start_due()
        async with self._database.connection() as connection:
            self.has_needs = await needs.has_needs(connection)
        if self.has_needs:
            await dependencies.execute_ready(self._database)
            await dependencies.release_waiting(self._database)
        async with self._database.connection() as connection:
            to_cancel = await runs.runs_to_cancel(connection, limit=BATCH)
            timed_out = await runs.timed_out_runs(connection, limit=BATCH)
            due = await run_steps.due_steps(connection, limit=BATCH)
        for run_id, tenant, reason in to_cancel:
            await self._cancel(run_id, tenant, reason, "cancelled")
        for run_id, tenant in timed_out:
            await self._cancel(run_id, tenant, "", "timed_out")
        for ref, tenant in due:
            await self._end_wait(ref, tenant)
        async with self._database.connection() as connection:
            self._lines, self._newest_line = await runs.workflow_lines(connection)
            return await runs.next_run_timer_s(connection)

    async def _end_wait(self, ref: StepRef, tenant: int) -> None:
        try:
            with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
                await run_actions.end_wait(self._runs, ref, tenant=tenant)
        except AWAY:
            raise
        except Exception:  # the steps behind it must not wait for it
            log.exception("run.wait_failed", run=str(ref.run_id), step=ref.step)

    async def sweep(self) -> None:
        """Complete what an older program or a dying process left half-done."""
        await self._advance_unadvanced()
        async with self._database.connection() as connection:
            half_cancelled = await runs.half_cancelled_runs(connection, limit=BATCH)
        for run_id, tenant in half_cancelled:
            with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
                await run_actions.finish_cancel(self._runs, run_id, tenant=tenant)

    async def _advance_unadvanced(self) -> None:
        """Advance runs whose steps ended without them, in batches; if a batch fails, one step at a time."""
        while True:
            async with self._database.connection() as connection:
                ends = [ExecutionEnd(*row) for row in await run_steps.unadvanced_steps(connection, limit=BATCH)]
            if not ends:
                return
            log.warning("run.unadvanced_steps", steps=len(ends))
            try:
                await run_actions.advance_ended(self._runs, ends)
            except Exception:
                for end in ends:
                    try:
                        await run_actions.advance_ended(self._runs, [end])
                    except Exception:
                        log.exception("run.advance_failed", execution=str(end.execution_id))
                return
            if len(ends) < BATCH:
                return

    async def _start_due(self) -> None:
        while True:
            async with self._database.connection() as connection:
                found = await runs.startable_runs(connection, limit=BATCH)
            by_limit: dict[int | None, list[UUID]] = {}
            for execution_id, limit_id in found:
                by_limit.setdefault(limit_id, []).append(execution_id)
            started = 0
            for limit_id, ids in by_limit.items():
                for first in range(0, len(ids), STARTS_PER_TRANSACTION):
                    batch = ids[first : first + STARTS_PER_TRANSACTION]
                    started += await self._start(batch, limit_id)
            if started < BATCH:
                return

    async def _start(self, execution_ids: list[UUID], limit_id: int | None) -> int:
        """Start runs; if that fails, one at a time. One that fails alone is ended, so that others are not held up."""
        try:
            return await run_actions.start_due(self._runs, execution_ids, limit_id)
        except (*AWAY, *CONFLICTS):
            raise
        except Exception as error:
            if len(execution_ids) > 1:
                return sum([await self._start([one], limit_id) for one in execution_ids])
            (execution_id,) = execution_ids
            log.exception("run.start_failed", run=str(execution_id))
            reason = f"the run could not be started: {type(error).__name__}: {error}"
            await run_actions.refuse_due(self._runs, execution_id, clipped(reason, MAX_MESSAGE_CHARS))
            return 1

    async def _cancel(self, run_id: UUID, tenant: int, reason: str, ends_as: str) -> None:
        with contextlib.suppress(NotFound, Conflict, *CONFLICTS):
            await run_actions.cancel(self._runs, run_id, tenant=tenant, by="the system", reason=reason, ends_as=ends_as)


def is_for_a_run(payload: str) -> bool:
    """Return whether a `cancel` notification is about a run, and not about a session."""
    return payload == str(ENGINE_SESSION)

"""Transactions that change runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from mainspring.announce import Announcer
from mainspring.domain.workflow.run import Run, StepEnd
from mainspring.runs.advance import Advanced, RunAdvance, advance
from mainspring.runs.plans import CachedPlan
from mainspring.store import needs, outbox, overlaps, runs, triggers
from mainspring.store.db import AWAY, CONFLICTS, Connection, Database
from mainspring.store.hints import hint_freed
from mainspring.views.pending_runs import has_no_steps
from mainspring.views.runs import RunViews

OPEN = ("running", "cancelling")


class RunTransactions:
    """Opens transactions that change runs, and does what follows when they end some.

    Every function that changes a run takes one. It shares the plan cache of `views`, which answers with the run.
    """

    def __init__(self, database: Database, views: RunViews | None = None, announcer: Announcer | None = None) -> None:
        self.database = database
        self.views = views or RunViews(database)
        self.plans = self.views.plans
        self._announcer = announcer

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[tuple[Connection, Advanced]]:
        """A transaction that may end runs; what waits for these runs is released as after any execution."""
        advanced = Advanced()
        async with self.database.transaction() as connection:
            yield connection, advanced
            settled = advanced.settled
            if settled.executions:
                await needs.release_after(connection, execution_ids=settled.executions)
                await triggers.notice_ends(connection, execution_ids=settled.executions)
                await outbox.notify_settled(connection, execution_ids=sorted(settled.executions))
            hint_freed(connection, settled.freed)
        if settled.executions and self._announcer is not None:
            self._announcer.announce("finished", settled.executions)
        if settled.chained:
            with contextlib.suppress(*AWAY, *CONFLICTS):  # the periodic sweep repeats it
                async with self.database.transaction() as connection:
                    await overlaps.release_blocked(connection, job_ids=sorted(settled.chained))

    async def lock(self, connection: Connection, run_id: UUID, *, tenant: int) -> tuple[Run, CachedPlan]:
        """Lock a run that has started; with the plan of its version."""
        run = await runs.lock_run(connection, tenant=tenant, run_id=run_id)
        if run is None:
            raise await has_no_steps(connection, self.plans, run_id, tenant=tenant)
        return run, await self.views.plan_of(connection, tenant=tenant, job_id=run.job_id, version=run.version)

    async def end_steps(self, connection: Connection, run: Run, ended: Sequence[StepEnd], advanced: Advanced) -> None:
        """End steps of a locked run, and advance it and the runs around it."""
        changed = await RunAdvance.load(connection, self.plans, [run])
        await changed.finish(ended)
        await advance(connection, self.plans, await changed.close(advanced), advanced)

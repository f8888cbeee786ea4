"""Send events to runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.run import StepEnd, StepRef
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.plans import CachedPlan
from mainspring.store import audit, executions, run_steps, runs
from mainspring.store.db import Connection
from mainspring.views.pending_runs import PENDING


async def send_event(
    transactions: RunTransactions, run_id: UUID, name: str, payload: Any, *, tenant: int, by: str
) -> wire.Run:
    """Send an event to a run, once: a step that waits for it succeeds now, or when the run reaches it.

    A queued run accepts it too: its execution is locked, so that it can't start without the event.
    """
    async with transactions.begin() as (connection, advanced):
        pending = await _lock_pending(transactions, connection, run_id, tenant=tenant)
        run, known = (
            (None, pending) if pending is not None else await transactions.lock(connection, run_id, tenant=tenant)
        )
        waiting = _steps_waiting_for(known, name)
        if run is not None and run.state not in OPEN:
            raise Conflict(f"the run has already ended: {run.state}", code="already_final")
        if not await runs.insert_run_event(connection, tenant=tenant, run_id=run_id, name=name, payload=payload, by=by):
            first = await runs.event_of_run(connection, run_id=run_id, name=name)
            assert first is not None
            message = f"the event {name!r} was already received from {first[2]} at {first[1].isoformat()}"
            raise Conflict(f"{message}; this one was ignored", code="event_repeated")
        ended = []
        for step in waiting:
            ref = StepRef(run_id, step.number)
            found = await run_steps.step_state(connection, ref=ref)
            if found is not None and found[0] == "waiting":
                ended.append(StepEnd(ref, "succeeded", "ok", payload, f"sent by {by}", by))
        if run is not None:
            await transactions.end_steps(connection, run, ended, advanced)
        await audit.record(connection, "run.event", run_id, tenant=tenant, by=by, name=known.plan.spec.name, event=name)
    return await transactions.views.get(run_id, tenant=tenant)


def _steps_waiting_for(known: CachedPlan, name: str) -> list[PlanStep]:
    found = [s for s in known.plan.steps if s.spec.event is not None and s.spec.event.name == name]
    if not found:
        names = sorted({s.spec.event.name for s in known.plan.steps if s.spec.event is not None})
        others = f"; it waits for {', '.join(names)}" if names else ""
        raise NotFound(f"no step of this run waits for an event {name!r}{others}")
    return found


async def _lock_pending(
    transactions: RunTransactions, connection: Connection, run_id: UUID, *, tenant: int
) -> CachedPlan | None:
    """The plan of a run that has not started, with its execution locked; None if the run has started."""
    found = await executions.execution_by_id(connection, tenant=tenant, execution_id=run_id)
    if found is None or found.state not in PENDING:
        return None
    if (await run_steps.lock_executions(connection, execution_ids=[run_id])).get(run_id) not in PENDING:
        return None
    return await transactions.plans.get(connection, tenant=tenant, job_id=found.job_id, version=found.version)

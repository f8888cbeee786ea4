"""Cancel runs, or end them at their timeout."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import Conflict
from mainspring.domain.workflow.run import WHOLE, ExecutionEnd, StepEnd, StepRef
from mainspring.intake.executions import cancel as cancel_execution
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.advance import advance
from mainspring.runs.plans import CachedPlan
from mainspring.store import audit, executions, run_steps, runs


async def cancel(
    transactions: RunTransactions,
    run_id: UUID,
    *,
    tenant: int,
    by: str,
    reason: str = "",
    ends_as: str = "cancelled",
) -> wire.Run:
    """Cancel a run: pending steps never start, running ones are asked to end; steps with rule `always` still run."""
    if await transactions.views.is_pending(run_id, tenant=tenant):
        await cancel_execution(transactions.database, run_id, tenant=tenant, by=by, reason=reason)
        return await transactions.views.get(run_id, tenant=tenant)
    async with transactions.begin() as (connection, _):
        run, known = await transactions.lock(connection, run_id, tenant=tenant)
        text = f"cancelled by {by}" + (f": {reason}" if reason else "")
        if ends_as != "cancelled":
            most_s = parse_duration(known.plan.spec.timeout or 0)
            text = f"timed out: it took longer than {format_duration(most_s)}"
        if run.state not in OPEN:
            raise Conflict(f"the run has already ended: {run.state}", code="already_final")
        await runs.cancel_run(connection, tenant=tenant, run_id=run_id, ends_as=ends_as, reason=text)
        await audit.record(
            connection,
            "run.cancel",
            run_id,
            tenant=tenant,
            by=by,
            name=known.plan.spec.name,
            reason=reason or (text if ends_as != "cancelled" else None),
        )
    await finish_cancel(transactions, run_id, tenant=tenant)
    return await transactions.views.get(run_id, tenant=tenant)


async def finish_cancel(transactions: RunTransactions, run_id: UUID, *, tenant: int) -> None:
    """End what a cancelled run still has open. Locks executions before the run, as settling does. Repeatable."""
    inner: list[UUID] = []
    async with transactions.begin() as (connection, advanced):
        steps = await run_steps.open_steps(connection, run_id=run_id)
        live = await run_steps.lock_executions(connection, execution_ids=[e for _, _, e in steps if e is not None])
        run, known = await transactions.lock(connection, run_id, tenant=tenant)
        if run.state != "cancelling":
            return
        reason = "the run timed out" if run.ends_as == "timed_out" else "the run was cancelled"
        gone: list[ExecutionEnd] = []
        for execution_id, state in sorted(live.items()):
            if state != "running":
                await executions.cancel_pending(connection, tenant=tenant, execution_id=execution_id, reason=reason)
                gone.append(ExecutionEnd(execution_id, "cancelled", None, reason))
            elif await runs.run_by_id(connection, tenant=tenant, run_id=execution_id) is not None:
                inner.append(execution_id)
            else:
                await executions.cancel_running(connection, tenant=tenant, execution_id=execution_id, reason=reason)
        ended = [
            StepEnd(ref, "cancelled", "failed", reason=reason)
            for ref, state, _ in steps
            if ref.item == WHOLE and _ends_at_once(known, ref, state)
        ]
        await transactions.end_steps(connection, run, ended, advanced)
        await advance(connection, transactions.plans, gone, advanced)
    for inner_id in inner:
        try:
            await cancel(transactions, inner_id, tenant=tenant, by="the run around it")
        except Conflict:
            continue


def _ends_at_once(known: CachedPlan, ref: StepRef, state: str) -> bool:
    """Whether cancelling its run ends this step at once: it waits, or is blocked without the rule `always`."""
    return state == "waiting" or (state == "blocked" and known.plan.steps[ref.step].spec.rule != "always")

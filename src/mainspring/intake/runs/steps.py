"""End single steps: approve or reject, skip, force-complete, time out.

A step that has failed can be skipped or completed as well. In a running run, the steps behind it continue. After its
end, nothing in a run changes: a new run takes over what had succeeded, and continues behind the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, invalid
from mainspring.domain.workflow.freeing import free
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.readiness import Weight
from mainspring.domain.workflow.run import ExecutionEnd, Run, StepEnd, StepRef
from mainspring.intake.runs.approvers import (
    add_approval,
    check_approver,
    check_scope,
    refuse_override,
    refuse_self_approval,
)
from mainspring.intake.runs.rerun import FAILED, StepAudit, rerun_freed
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.advance import Advanced, RunAdvance, advance
from mainspring.store import audit, dead_letters, executions, run_steps
from mainspring.store.db import Connection
from mainspring.views.runs import step_named


async def decide(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    decision: wire.Decision,
    *,
    tenant: int,
    by: str,
    scopes: Sequence[str],
    approved: bool,
) -> wire.Run:
    """Approve or reject a step that waits for approval; `scopes` must include the one the step requires.

    Who started the run or wrote the workflow may reject it, but approve it only if the step says so.
    """

    def decided(step: PlanStep, state: str) -> StepEnd | None:
        if step.spec.approval is None:
            raise Conflict(f"the step {name!r} waits for no approval", code="no_approval")
        check_scope(step, scopes)
        check_approver(step, by)
        if state != "waiting":
            return None
        result = {"approved": approved, "by": str(by), "note": decision.note}
        reason = f"{'approved' if approved else 'rejected'} by {by}" + (f": {decision.note}" if decision.note else "")
        ref = StepRef(run_id, step.number)
        if approved:
            return StepEnd(ref, "succeeded", "ok", result, reason, by)
        return StepEnd(ref, "failed", "failed", result, reason, by)

    entry = StepAudit("step.approve" if approved else "step.reject", by, decision.note)
    return await _end_step(transactions, run_id, name, decided, entry, tenant=tenant, opens=approved)


async def skip(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    reason: str,
    *,
    tenant: int,
    by: str,
    scopes: Sequence[str] = (),
) -> wire.Run:
    """Skip a step: the steps behind it continue as if it had succeeded, and see its flag `skipped`."""
    entry = StepAudit("step.skip", by, reason)
    return await _override(transactions, run_id, name, "skipped", "skipped", None, entry, scopes, tenant=tenant)


async def force_complete(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    reason: str,
    result: Any,
    *,
    tenant: int,
    by: str,
    scopes: Sequence[str] = (),
) -> wire.Run:
    """Mark a step that has not succeeded as succeeded, with a result."""
    entry = StepAudit("step.force_complete", by, reason)
    return await _override(transactions, run_id, name, "succeeded", "forced", result, entry, scopes, tenant=tenant)


async def _override(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    state: str,
    flag: str,
    result: Any,
    entry: StepAudit,
    scopes: Sequence[str],
    *,
    tenant: int,
) -> wire.Run:
    if not entry.reason.strip():
        raise invalid("/reason", "a reason is required", hint="say why; it is kept in the audit log")
    reason = f"{'skipped' if flag == 'skipped' else 'completed'} by {entry.by}: {entry.reason}"

    def overridden(step: PlanStep, old: str) -> StepEnd | None:
        check_scope(step, scopes)  # a caller that may not approve must not bypass the approval either
        check_approver(step, entry.by)
        refuse_override(step)
        if old not in ("blocked", "waiting", "running", *FAILED):
            return None
        weight: Weight = "ok"
        return StepEnd(StepRef(run_id, step.number), state, weight, result, reason, entry.by, flag)

    try:
        return await _end_step(transactions, run_id, name, overridden, entry, tenant=tenant)
    except RunHasEnded as ended:
        return await rerun_freed(transactions, ended.freed, entry, step=name, was=ended.was, tenant=tenant)


class RunHasEnded(Exception):
    """A failed step is to be freed in a run that has ended, which only a new run can do."""

    def __init__(self, freed: StepEnd, was: str) -> None:
        super().__init__(was)
        self.freed = freed
        self.was = was


async def _end_step(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    judge: Callable[[PlanStep, str], StepEnd | None],
    entry: StepAudit,
    *,
    tenant: int,
    opens: bool = True,
) -> wire.Run:
    """End a step on request, and cancel its live executions. Locks executions before the run, as settling does.

    `opens`: the steps behind it continue.
    """
    async with transactions.begin() as (connection, advanced):
        number = await _step_number(transactions, connection, run_id, name, tenant=tenant)
        steps = await run_steps.open_steps(connection, run_id=run_id)
        mine = [e for ref, _, e in steps if ref.step == number and e is not None]
        live = await run_steps.lock_executions(connection, execution_ids=mine)
        run, known = await transactions.lock(connection, run_id, tenant=tenant)
        ref = StepRef(run_id, number)
        found = await run_steps.step_state(connection, ref=ref)
        assert found is not None, "a run has all its steps"
        if opens:
            await refuse_self_approval(connection, known.plan.steps[number], run_id, tenant=tenant, by=entry.by)
        end = judge(known.plan.steps[number], found[0])
        if end is not None and found[0] in FAILED and run.state not in OPEN:
            raise RunHasEnded(end, found[0])
        if end is None or run.state not in OPEN or (found[0] in FAILED and run.cancelling):
            raise _refusal(name, found[0], run)
        end, approvals = await _with_approvals(connection, known.plan.steps[number], end, entry, tenant=tenant)
        if end is not None and found[0] in FAILED:
            await _free(transactions, connection, run, end, advanced, was=found[0], reason=entry.reason)
        elif end is not None:
            await run_steps.cancel_items(connection, refs=[ref], reason=end.reason or "")
            for execution_id, state in live.items():
                cancel = executions.cancel_running if state == "running" else executions.cancel_pending
                await cancel(connection, tenant=tenant, execution_id=execution_id, reason=end.reason or "")
            await transactions.end_steps(connection, run, [end], advanced)
        await audit.record(
            connection,
            entry.action,
            run_id,
            tenant=tenant,
            by=entry.by,
            name=f"{known.plan.spec.name}.{name}",
            reason=entry.reason,
            step=name,
            state=found[0],
            **approvals,
        )
    return await transactions.views.get(run_id, tenant=tenant)


async def _with_approvals(
    connection: Connection, step: PlanStep, end: StepEnd, entry: StepAudit, *, tenant: int
) -> tuple[StepEnd | None, dict[str, int]]:
    """Count an approval of a step that needs several: it ends with the last one. Returns also details to record."""
    approval = step.spec.approval
    if approval is None or approval.count == 1 or entry.action != "step.approve":
        return end, {}
    given = await add_approval(connection, step, end.ref, tenant=tenant, by=entry.by, note=entry.reason)
    counted = {"approvals": len(given), "needed": approval.count}
    if len(given) < approval.count:
        return None, counted
    return replace(end, result=end.result | {"approvers": given}), counted


def _refusal(name: str, state: str, run: Run) -> Conflict:
    message = f"the step {name!r} is {state.replace('_', ' ')}, so nothing was changed"
    if state == "skipped":
        message += (
            "; to execute it, skip or complete the failed step that it needs, or use mainspring runs rerun --from"
        )
    elif state in FAILED and run.cancelling:
        message += "; the run is being cancelled: repeat this once it has ended"
    return Conflict(message, code="not_waiting")


async def _free(
    transactions: RunTransactions,
    connection: Connection,
    run: Run,
    end: StepEnd,
    advanced: Advanced,
    *,
    was: str,
    reason: str,
) -> None:
    """Count a failed step of a locked, running run as ok, and continue behind it."""
    changed = await RunAdvance.load(connection, transactions.plans, [run])
    known = await transactions.views.plan_of(connection, tenant=run.tenant, job_id=run.job_id, version=run.version)
    statuses = await run_steps.step_statuses(connection, run_id=run.run_id)
    ready = await run_steps.free_step(connection, end=end, was=was, freed=free(known.plan, end.ref.step, statuses))
    assert ready is not None, "the run is locked"
    await dead_letters.resolve_step_letters(
        connection,
        tenant=run.tenant,
        run_id=run.run_id,
        step=end.ref.step,
        resolved_by=run.run_id,
        by=end.by or "",
        reason=end.reason or reason,
    )
    await changed.start(ready)
    await advance(connection, transactions.plans, await changed.close(advanced), advanced)


async def _step_number(
    transactions: RunTransactions, connection: Connection, run_id: UUID, name: str, *, tenant: int
) -> int:
    row = await transactions.views.started_row(connection, run_id, tenant=tenant)
    known = await transactions.views.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
    return step_named(known, name).number


async def end_wait(transactions: RunTransactions, ref: StepRef, *, tenant: int) -> None:
    """End a waiting step whose time has come: a wait succeeds, an approval or an event times out."""
    async with transactions.begin() as (connection, advanced):
        run, known = await transactions.lock(connection, ref.run_id, tenant=tenant)
        spec = known.plan.steps[ref.step].spec
        if spec.wait is not None:
            end = StepEnd(ref, "succeeded", "ok")
        else:
            what = "it was not approved" if spec.approval is not None else "the event did not arrive"
            end = StepEnd(ref, "timed_out", "failed", reason=f"{what} in time")
        await transactions.end_steps(connection, run, [end], advanced)


async def advance_ended(transactions: RunTransactions, ends: Sequence[ExecutionEnd]) -> None:
    """Advance runs whose executions ended without advancing them."""
    async with transactions.begin() as (connection, advanced):
        await advance(connection, transactions.plans, ends, advanced)

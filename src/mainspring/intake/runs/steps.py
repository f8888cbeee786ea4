"""End single steps: approve or reject, skip, force-complete, time out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, Forbidden, invalid
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.readiness import Weight
from mainspring.domain.workflow.run import ExecutionEnd, StepEnd, StepRef
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.advance import advance
from mainspring.store import audit, executions, run_steps
from mainspring.store.db import Connection
from mainspring.views.runs import step_named

FAILED = ("failed", "timed_out", "lost", "cancelled")


@dataclass(frozen=True, slots=True)
class StepAudit:
    """The audit entry of a change to a step."""

    action: str
    by: str
    reason: str


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
    """Approve or reject a step that waits for approval; `scopes` must include the one the step requires."""

    def decided(step: PlanStep, state: str) -> StepEnd | None:
        if step.spec.approval is None:
            raise Conflict(f"the step {name!r} waits for no approval", code="no_approval")
        _check_scope(step, scopes)
        if state != "waiting":
            return None
        result = {"approved": approved, "by": by, "note": decision.note}
        reason = f"{'approved' if approved else 'rejected'} by {by}" + (f": {decision.note}" if decision.note else "")
        ref = StepRef(run_id, step.number)
        if approved:
            return StepEnd(ref, "succeeded", "ok", result, reason, by)
        return StepEnd(ref, "failed", "failed", result, reason, by)

    entry = StepAudit("step.approve" if approved else "step.reject", by, decision.note)
    return await _end_step(transactions, run_id, name, decided, entry, tenant=tenant)


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
    """Mark a step that has not ended as succeeded, with a result."""
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
        _check_scope(step, scopes)  # a caller that may not approve must not bypass the approval either
        if old not in ("blocked", "waiting", "running"):
            return None
        weight: Weight = "ok"
        return StepEnd(StepRef(run_id, step.number), state, weight, result, reason, entry.by, flag)

    return await _end_step(transactions, run_id, name, overridden, entry, tenant=tenant)


async def _end_step(
    transactions: RunTransactions,
    run_id: UUID,
    name: str,
    judge: Callable[[PlanStep, str], StepEnd | None],
    entry: StepAudit,
    *,
    tenant: int,
) -> wire.Run:
    """End a step on request, and cancel its live executions. Locks executions before the run, as settling does."""
    async with transactions.begin() as (connection, advanced):
        number = await _step_number(transactions, connection, run_id, name, tenant=tenant)
        steps = await run_steps.open_steps(connection, run_id=run_id)
        mine = [e for ref, _, e in steps if ref.step == number and e is not None]
        live = await run_steps.lock_executions(connection, execution_ids=mine)
        run, known = await transactions.lock(connection, run_id, tenant=tenant)
        ref = StepRef(run_id, number)
        found = await run_steps.step_state(connection, ref=ref)
        assert found is not None, "a run has all its steps"
        end = judge(known.plan.steps[number], found[0])
        if end is None or run.state not in OPEN:
            message = f"the step {name!r} is {found[0].replace('_', ' ')}, so nothing was changed"
            hint = "; once the run has ended, mainspring runs rerun repeats it" if found[0] in FAILED else ""
            raise Conflict(message + hint, code="not_waiting")
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
        )
    return await transactions.views.get(run_id, tenant=tenant)


async def _step_number(
    transactions: RunTransactions, connection: Connection, run_id: UUID, name: str, *, tenant: int
) -> int:
    row = await transactions.views.started_row(connection, run_id, tenant=tenant)
    known = await transactions.views.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
    return step_named(known, name).number


def _check_scope(step: PlanStep, scopes: Sequence[str]) -> None:
    approval = step.spec.approval
    if approval is not None and approval.scope == "admin" and "admin" not in scopes:
        raise Forbidden(f"the step {step.name!r} requires approval with the scope 'admin'")


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

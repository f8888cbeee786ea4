"""Which decisions about steps a caller may make, for pages that offer only those: the checks of `decide` and `skip`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring.domain.errors import Forbidden
from mainspring.domain.principal import Principal
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.run import StepRef
from mainspring.intake.runs.approvers import check_approver, check_scope, refuse_self_approval
from mainspring.intake.runs.transaction import RunTransactions
from mainspring.store import step_approvals
from mainspring.store.db import Connection


@dataclass(frozen=True, slots=True)
class StepRights:
    """`override`: skip or complete the step. `refusal`: why the caller cannot approve it."""

    approve: bool = True
    reject: bool = True
    override: bool = True
    refusal: str = ""


async def step_rights(
    transactions: RunTransactions,
    run_id: UUID,
    names: Iterable[str],
    *,
    job_id: UUID,
    version: int,
    tenant: int,
    by: str,
    scopes: Sequence[str],
) -> dict[str, StepRights]:
    """Return the caller's rights for steps of a run. Rights that a route demands from every caller are not checked."""
    if not (wanted := set(names)):
        return {}
    async with transactions.database.connection() as connection:
        known = await transactions.views.plan_of(connection, tenant=tenant, job_id=job_id, version=version)
        return {
            step.name: await _rights(connection, step, run_id, tenant=tenant, by=by, scopes=scopes)
            for step in known.plan.steps
            if step.name in wanted
        }


async def _rights(
    connection: Connection, step: PlanStep, run_id: UUID, *, tenant: int, by: str, scopes: Sequence[str]
) -> StepRights:
    approval = step.spec.approval
    if approval is None:
        return StepRights()
    try:
        check_scope(step, scopes)
    except Forbidden:
        return StepRights(False, False, False, f"requires {approval.scope}")
    try:
        check_approver(step, by)
    except Forbidden:
        return StepRights(False, False, False, f"requires {' or '.join(approval.deciders)}")
    try:
        await refuse_self_approval(connection, step, run_id, tenant=tenant, by=by)
    except Forbidden:
        return StepRights(False, True, False, "requires another approver")
    if approval.count > 1 and isinstance(by, Principal):
        given = await step_approvals.has_approved(connection, tenant=tenant, ref=StepRef(run_id, step.number), by=by)
        return StepRights(not given, True, False, "you, or who issued your token, have approved it" if given else "")
    return StepRights(override=approval.count == 1)

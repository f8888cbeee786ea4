"""Who may open a gate, and how many of them have to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from mainspring.domain.errors import Conflict, Forbidden, Problem
from mainspring.domain.principal import SHORT_ID, Principal
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.run import StepRef
from mainspring.domain.workflow.spec import Approval, WorkflowSpec
from mainspring.store import runs, step_approvals, tokens
from mainspring.store.db import Connection

_SHORT_ID = re.compile(r"\[([0-9a-f]{8})\]\Z")


def check_scope(step: PlanStep, scopes: Sequence[str]) -> None:
    """Refuse a caller without the scope that a gate requires."""
    approval = step.spec.approval
    if approval is not None and approval.scope == "admin" and "admin" not in scopes:
        raise Forbidden(f"the step {step.name!r} requires approval with the scope 'admin'")


def check_approver(step: PlanStep, by: str) -> None:
    """Refuse a caller who is not among those who decide about a step."""
    approval = step.spec.approval
    if approval is not None and not admits(approval, by):
        message = f"the step {step.name!r} is decided by {_deciders(approval)}"
        raise Forbidden(message, code="not_approver", problems=(Problem("/step", message, "ask one of them"),))


def check_editor(before: WorkflowSpec, by: str) -> None:
    """Refuse a change of a workflow by a caller who may not decide about a gate that guards its edits."""
    for name, step in before.steps.items():
        if step.approval is not None and step.approval.guards_edits and not admits(step.approval, by):
            message = f"the gate {name!r} guards the workflow: only {_deciders(step.approval)} may change it"
            problem = Problem(f"/steps/{name}/approval", message, "ask one of them to make the change")
            raise Forbidden(message, code="not_approver", problems=(problem,))


def admits(approval: Approval, by: str) -> bool:
    if isinstance(by, Principal):
        return approval.admits(role=by.role, user=by.user, groups=by.groups)
    return approval.admits(role=None, user=None)


def refuse_override(step: PlanStep) -> None:
    """Refuse to skip or complete a gate that several have to open: one caller must not replace them."""
    approval = step.spec.approval
    if approval is not None and approval.count > 1:
        message = f"the step {step.name!r} needs {approval.count} approvals; it cannot be skipped or completed"
        raise Forbidden(message, code="more_approvals", problems=(Problem("/step", message, "approve or reject it"),))


async def refuse_self_approval(connection: Connection, step: PlanStep, run_id: UUID, *, tenant: int, by: str) -> None:
    """Refuse to open a gate to who wants to pass it, in any way: approving, skipping or completing the step.

    Another token of the same user, or one that a user has issued without being an administrator, is no other person.
    A token that an administrator has issued may be in the hands of two: its user and its issuer. Each counts.
    """
    approval = step.spec.approval
    if approval is None or approval.self_approval:
        return
    behind = await runs.run_principals(connection, tenant=tenant, run_id=run_id)
    before_ids = by.name if isinstance(by, Principal) else by  # as runs and versions had it before ids were recorded
    refused = by in behind or before_ids in behind
    if not refused and isinstance(by, Principal):
        short_ids = {found[1] for text in behind if (found := _SHORT_ID.search(text)) is not None}
        persons = await tokens.persons_of_tokens(connection, tenant=tenant, short_ids=sorted(short_ids))
        if any(person.hex[:SHORT_ID] in short_ids for person in (by.person_id, *by.issuers)):
            persons.append((by.person_id, []))
        refused = any(by.may_be(person, issuers) for person, issuers in persons)
    if refused:
        raise _self_approval(step, by)


def _self_approval(step: PlanStep, by: str) -> Forbidden:
    message = f"the step {step.name!r} needs the approval of another token: {by} started the run or wrote the workflow"
    if isinstance(by, Principal) and by.issued_by is not None:
        message += f", or who issued one token with the other ({by} was issued by {by.issued_by})"
    hint = "approve it with the token of another user; to allow this, set self_approval: true in the approval"
    return Forbidden(message, code="self_approval", problems=(Problem("/step", message, hint),))


async def add_approval(
    connection: Connection, step: PlanStep, ref: StepRef, *, tenant: int, by: str, note: str
) -> list[str]:
    """Add an approval to those that a step has; return all of them.

    Each user or token counts once, and so do a token and who issued it.
    """
    if not isinstance(by, Principal):
        return [by]
    if not await step_approvals.insert_approval(connection, tenant=tenant, ref=ref, by=by, note=note):
        message = (
            f"{by} has approved the step {step.name!r} already, or who issued its token has, or a token that it issued;"
            " it needs the approval of others"
        )
        raise Conflict(message, code="already_approved")
    return await step_approvals.list_approvals(connection, tenant=tenant, ref=ref)


def _deciders(approval: Approval) -> str:
    return " or ".join(f"the {kind} {name!r}" for kind, _, name in (text.partition(" ") for text in approval.deciders))

"""Approvals of steps that need several. Callers have locked the run."""

from __future__ import annotations

from mainspring.domain.principal import Principal
from mainspring.domain.workflow.run import StepRef
from mainspring.store.db import Connection
from mainspring.store.queries import q


async def insert_approval(connection: Connection, *, tenant: int, ref: StepRef, by: Principal, note: str) -> bool:
    """Add an approval; False if this approver has given one before, or one of two issued the token of the other."""
    row = await connection.fetchrow(
        q("insert_approval"), ref.run_id, tenant, ref.step, by.person_id, by, note, sorted(by.issuers)
    )
    return row is not None


async def list_approvals(connection: Connection, *, tenant: int, ref: StepRef) -> list[str]:
    return [r["approved_by"] for r in await connection.fetch(q("list_approvals"), ref.run_id, tenant, ref.step)]


async def has_approved(connection: Connection, *, tenant: int, ref: StepRef, by: Principal) -> bool:
    """Whether this approver has given an approval, or who issued its token, or a token that it issued."""
    return bool(
        await connection.fetchval(q("has_approved"), ref.run_id, tenant, ref.step, by.person_id, sorted(by.issuers))
    )

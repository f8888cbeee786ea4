"""What a workflow was, what each version changed, and the way back to one."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.workflow.plan import order_of
from mainspring.intake import workflows
from mainspring.store import workflows as store
from mainspring.store.db import Database
from mainspring.views import refs

MOST = 50
"""Versions are read with all their steps, so that a page of them is a small one."""


async def versions(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 20
) -> wire.Page[wire.WorkflowChange]:
    """The versions of a workflow, newest first, each with what it changed."""
    if not 1 <= limit <= MOST:
        raise invalid("/limit", f"limit is {limit}", hint=f"ask for 1 to {MOST}")
    if cursor is not None and not cursor.isdigit():
        raise refs.bad_cursor()
    row = await workflows.row_of(database, ref, tenant=tenant)
    before = int(cursor) if cursor else row.version + 1
    async with database.connection() as connection:
        # One more than is told: the last is compared with it.
        found = await store.workflow_versions(
            connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1
        )
    told = [
        wire.WorkflowChange(
            version=new.version,
            created_at=new.created_at,
            created_by=new.created_by,
            steps=len(new.spec.steps),
            **({} if old is None else workflows.difference(old.spec, new.spec).get("steps", {})),
            fields=[] if old is None else workflows.difference(old.spec, new.spec)["fields"],
        )
        for new, old in zip(found, [*found[1:], None], strict=True)
    ][:limit]
    return wire.Page(items=told, next_cursor=str(told[-1].version) if len(found) > limit else None)


async def version(database: Database, ref: str, number: int, *, tenant: int) -> wire.WorkflowVersion:
    """What one version of a workflow says."""
    row = await workflows.row_of(database, ref, tenant=tenant)
    async with database.connection() as connection:
        found = await store.workflow_version(connection, tenant=tenant, job_id=row.job_id, version=number)
    if found is None or found.version != number:
        raise NotFound(f"{row.name} has no version {number}; mainspring workflows versions {row.name} lists them")
    return wire.WorkflowVersion(version=number, spec=found.spec, order=order_of(found.spec))


async def rollback(
    database: Database,
    ref: str,
    number: int,
    *,
    tenant: int,
    by: str,
    seen: int | None = None,
    may_exceed: bool = False,
) -> wire.Workflow:
    """An earlier version as a new one. It is checked as if it were new, and whether it is paused does not change."""
    row = await workflows.row_of(database, ref, tenant=tenant)
    wanted = await version(database, str(row.job_id), number, tenant=tenant)
    found, _ = await workflows.apply(
        database,
        wanted.spec,
        tenant=tenant,
        by=by,
        seen=row.version if seen is None else seen,
        may_exceed=may_exceed,
        rollback_to=number,
    )
    return found

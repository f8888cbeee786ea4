"""Jobs and workflows that need a job: they prevent its deletion, or are detached from it."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.errors import Conflict, NotFound, Problem
from mainspring.domain.job import WorkflowTask
from mainspring.store import audit, needs, workflows
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow, job_by_id
from mainspring.store.needs import NeedingJob

NAMED_JOBS = 5


async def refuse_needed(connection: Connection, row: JobRow, *, tenant: int, detach: bool) -> list[NeedingJob]:
    """Refuse to delete a job that others need or that is a step of a workflow, unless `detach`; return those jobs.

    Call it first in the transaction: it locks the tenant's dependencies, so none is added until commit.
    """
    await needs.lock_tenant(connection, tenant=tenant)
    found = await needs.needing(connection, tenant=tenant, parent=row.job_id)
    if detach:
        return found
    names, what = [child.name for child in found], "is needed by"
    if not names and isinstance(row.spec.task, WorkflowTask):
        names = await workflows.workflows_with_step(connection, tenant=tenant, name=row.name, limit=NAMED_JOBS + 1)
        what = "is a step of"
    if names:
        more = f" and {len(names) - NAMED_JOBS} more" if len(names) > NAMED_JOBS and found else ""
        more = " and more" if len(names) > NAMED_JOBS and not found else more
        message = f"{row.name} {what} {', '.join(names[:NAMED_JOBS])}{more}"
        hint = "change those first, or delete it with cascade=detach (--detach): they then continue without it"
        raise Conflict(message, code="needed", problems=(Problem("/cascade", message, hint),))
    return []


async def detach(
    connection: Connection,
    row: JobRow,
    children: Sequence[NeedingJob],
    *,
    changes: dict[int, int],
    tenant: int,
    by: str,
) -> None:
    """Remove all dependencies of and on a job; release fires that waited for nothing else.

    The caller has locked the shards and the rows of the job and its children; `changes` are the shards' change numbers.
    """
    await needs.drop_needs(connection, tenant=tenant, job_id=row.job_id)
    for child in children:
        await needs.mark_needing(connection, tenant=tenant, child=child.job_id, change=changes[child.shard])
    if children:
        await needs.release(connection, children=[child.job_id for child in children])
        entries = [AuditSubject(str(child.job_id), child.name, {"parent": row.name}) for child in children]
        reason = f"{row.name} was deleted"
        await audit.record_all(connection, "job.unneed", entries, tenant=tenant, by=by, reason=reason)


async def require_parent(connection: Connection, parent: JobRow, *, tenant: int) -> None:
    """Check that a job exists. The caller has locked the tenant's dependencies, so it can't be deleted meanwhile."""
    row = await job_by_id(connection, tenant=tenant, job_id=parent.job_id)
    if row is None or row.deleted_at is not None:
        raise NotFound(f"there is no job {parent.name!r}")

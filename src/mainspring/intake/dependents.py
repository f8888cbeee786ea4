"""Deleting what others need: refused, with their names, unless they are to go on without it."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.errors import Conflict, NotFound, Problem
from mainspring.domain.job import WorkflowTask
from mainspring.store import audit, needs, workflows
from mainspring.store.audit import Entry
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow, job_by_id
from mainspring.store.needs import Needing

NAMED = 5


async def refuse_needed(connection: Connection, row: JobRow, *, tenant: int, detach: bool) -> list[Needing]:
    """The jobs that need this one; without `detach` it is an error that there are any, or workflows with it as a step.

    Begins the transaction: nobody makes a job need this one until it ends.
    """
    await needs.lock_tenant(connection, tenant=tenant)
    found = await needs.needing(connection, tenant=tenant, parent=row.job_id)
    if detach:
        return found
    names, what = [child.name for child in found], "is needed by"
    if not names and isinstance(row.spec.task, WorkflowTask):
        names = await workflows.workflows_with_step(connection, tenant=tenant, name=row.name, limit=NAMED + 1)
        what = "is a step of"
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED and found else ""
        more = " and more" if len(names) > NAMED and not found else more
        message = f"{row.name} {what} {', '.join(names[:NAMED])}{more}"
        hint = "change those first, or delete it with cascade=detach (--detach): they then go on without it"
        raise Conflict(message, code="needed", problems=(Problem("/cascade", message, hint),))
    return []


async def detach(
    connection: Connection, row: JobRow, children: Sequence[Needing], *, changes: dict[int, int], tenant: int, by: str
) -> None:
    """Nobody needs the job any more, nor does it need anybody; fires that waited for nothing else go on.

    The caller holds the shards and the rows of the job and of these children; `changes` are those of the shards.
    """
    await needs.drop_needs(connection, tenant=tenant, job_id=row.job_id)
    for child in children:
        await needs.mark_needing(connection, tenant=tenant, child=child.job_id, change=changes[child.shard])
    if children:
        await needs.release(connection, children=[child.job_id for child in children])
        entries = [Entry(str(child.job_id), child.name, {"parent": row.name}) for child in children]
        reason = f"{row.name} was deleted"
        await audit.record_all(connection, "job.unneed", entries, tenant=tenant, by=by, reason=reason)


async def hold_parent(connection: Connection, parent: JobRow, *, tenant: int) -> None:
    """That a job which another shall need is still there; whoever would delete it waits for this transaction."""
    row = await job_by_id(connection, tenant=tenant, job_id=parent.job_id)
    if row is None or row.deleted_at is not None:
        raise NotFound(f"there is no job {parent.name!r}")

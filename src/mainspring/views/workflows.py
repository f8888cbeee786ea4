"""Workflows and their versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.job import WorkflowTask
from mainspring.domain.workflow.plan import order_of
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.store import jobs, workflows
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.store.workflows import VersionRow
from mainspring.views import jobs as job_views
from mainspring.views import refs

MAX_VERSIONS_PAGE = 50
"""Smaller than other pages: each version is read with all its steps."""


async def get(database: Database, ref: str, *, tenant: int) -> wire.Workflow:
    row = await row_of(database, ref, tenant=tenant)
    version = await current_version(database, row, tenant=tenant)
    if version is None:
        raise NotFound(f"there is no workflow {ref!r}")
    job = await job_views.get(database, str(row.job_id), tenant=tenant)
    return wire.Workflow(
        job_id=row.job_id,
        name=row.name,
        version=row.version,
        state=job.state,
        spec=version.spec,
        order=order_of(version.spec),
        schedule_description=job.schedule_description,
        next_fire_at=job.next_fire_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        updated_by=version.created_by,
    )


async def list_workflows(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.WorkflowLine]:
    """Workflows by name."""
    refs.check_limit(limit)
    async with database.connection() as connection:
        rows = await workflows.list_workflows(connection, tenant=tenant, after=cursor or "", limit=limit + 1)
    page = [
        wire.WorkflowLine(
            job_id=r.job_id, name=r.name, version=r.version, steps=r.steps, paused=r.paused, updated_at=r.updated_at
        )
        for r in rows[:limit]
    ]
    return wire.Page(items=page, next_cursor=page[-1].name if len(rows) > limit else None)


async def latest_of(
    database: Database, job_ids: Sequence[UUID], *, tenant: int
) -> dict[UUID, list[wire.LastExecution]]:
    """The latest 20 runs of each workflow, newest first."""
    if not job_ids:
        return {}
    async with database.connection() as connection:
        now = instant(int(await database_now_ms(connection)))
        return await jobs.last_executions(connection, tenant=tenant, job_ids=job_ids, now=now)


async def row_of(database: Database, ref: str, *, tenant: int) -> JobRow:
    """The job that a workflow is stored as."""
    try:
        row = await refs.job_row(database, ref, tenant=tenant)
    except NotFound:
        raise NotFound(f"there is no workflow {ref!r}") from None
    if not isinstance(row.spec.task, WorkflowTask):
        raise NotFound(f"{ref!r} is a job, not a workflow")
    return row


async def current_version(database: Database, row: JobRow, *, tenant: int) -> VersionRow | None:
    """The current version of a workflow; None if the job is not a workflow."""
    async with database.connection() as connection:
        return await workflows.workflow_version(connection, tenant=tenant, job_id=row.job_id, version=row.version)


async def spec_of_version(database: Database, job_id: UUID, version: int, *, tenant: int) -> WorkflowSpec | None:
    """The definition that a version of a workflow has."""
    async with database.connection() as connection:
        found = await workflows.workflow_version(connection, tenant=tenant, job_id=job_id, version=version)
    return None if found is None else found.spec


async def list_versions(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 20
) -> wire.Page[wire.WorkflowChange]:
    """The versions of a workflow, newest first, each with what it changed."""
    if not 1 <= limit <= MAX_VERSIONS_PAGE:
        raise invalid("/limit", f"{limit} is out of range", hint=f"between 1 and {MAX_VERSIONS_PAGE}")
    after = refs.number_cursor(cursor)
    row = await row_of(database, ref, tenant=tenant)
    before = after or row.version + 1
    async with database.connection() as connection:
        # One more than is returned: the last one is compared with it.
        found = await workflows.workflow_versions(
            connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1
        )
    page = [
        wire.WorkflowChange(
            version=new.version,
            created_at=new.created_at,
            created_by=new.created_by,
            steps=len(new.spec.steps),
            **({} if old is None else difference(old.spec, new.spec).get("steps", {})),
            fields=[] if old is None else difference(old.spec, new.spec)["fields"],
        )
        for new, old in zip(found, [*found[1:], None], strict=True)
    ][:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].version) if len(found) > limit else None)


async def version(database: Database, ref: str, number: int, *, tenant: int) -> wire.WorkflowVersion:
    """One version of a workflow."""
    row = await row_of(database, ref, tenant=tenant)
    async with database.connection() as connection:
        found = await workflows.workflow_version(connection, tenant=tenant, job_id=row.job_id, version=number)
    if found is None or found.version != number:
        raise NotFound(f"{row.name} has no version {number}; mainspring workflows versions {row.name} lists them")
    return wire.WorkflowVersion(version=number, spec=found.spec, order=order_of(found.spec))


def difference(old: WorkflowSpec, new: WorkflowSpec) -> dict[str, Any]:
    """Which fields of a workflow differ, and which of its steps."""
    found: dict[str, Any] = {
        "fields": [name for name in WorkflowSpec.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    }
    steps = {
        "added": sorted(new.steps.keys() - old.steps.keys()),
        "removed": sorted(old.steps.keys() - new.steps.keys()),
        "changed": sorted(name for name in new.steps.keys() & old.steps.keys() if new.steps[name] != old.steps[name]),
    }
    if any(steps.values()):
        found["steps"] = {kind: names for kind, names in steps.items() if names}
    return found

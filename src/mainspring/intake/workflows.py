"""Writing workflows: checked and compiled, then stored as a job, its steps' definitions and where they wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.job import JobSpec, WorkflowTask
from mainspring.domain.placement.line import line_of
from mainspring.domain.workflow.plan import Plan, compile_workflow, order_of
from mainspring.domain.workflow.spec import WorkflowSpec, job_of
from mainspring.ids import new_id
from mainspring.intake import jobs
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.store import lines, workflows
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.jobs import JobRow, job_by_name
from mainspring.store.workflows import StepRow, VersionRow, content
from mainspring.views import jobs as job_views
from mainspring.views import refs


async def apply(
    database: Database,
    spec: WorkflowSpec,
    *,
    tenant: int,
    by: str,
    seen: int | None = None,
    may_exceed: bool = False,
    rollback_to: int | None = None,
) -> tuple[wire.Workflow, str]:
    """Adds a workflow, or makes the one of that name like this; runs that have begun stay as they are.

    Tells also what was done: created, changed or unchanged. With `seen`, only if that is still the current version; 0:
    only if there is none. `rollback_to`: it is what this version said, for the audit.
    """
    plan = compile_workflow(spec)
    async with database.connection() as connection:
        row = await job_by_name(connection, tenant=tenant, name=spec.name)
    if row is None:
        try:
            async with database.transaction() as connection:
                job_id = await jobs.add(connection, job_of(spec), tenant=tenant, by=by)
                await _write(
                    connection,
                    plan,
                    tenant=tenant,
                    job_id=job_id,
                    version=1,
                    by=by,
                    before=None,
                    may_exceed=may_exceed,
                )
        except Taken:
            raise jobs.name_taken(spec.name) from None
        return await get(database, spec.name, tenant=tenant), "created"
    if seen == 0:
        raise jobs.name_taken(spec.name)
    if seen is not None and seen != row.version:
        raise jobs.changed_meanwhile(seen, row.version)
    before = await _version(database, row, tenant=tenant)
    after = msgspec.structs.replace(spec, paused=before.spec.paused)
    if before.spec == after:
        return await get(database, spec.name, tenant=tenant), "unchanged"
    await jobs.replace_workflow(
        database,
        row.job_id,
        lambda old: msgspec.structs.replace(job_of(spec), paused=old.paused),
        _writer(plan, tenant=tenant, job_id=row.job_id, by=by, before=before, may_exceed=may_exceed),
        tenant=tenant,
        by=by,
        seen=row.version,
        details=difference(before.spec, after),
        rollback_to=rollback_to,
    )
    return await get(database, spec.name, tenant=tenant), "changed"


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


async def check(spec: WorkflowSpec) -> list[str]:
    """The steps in the order they can be executed; or everything that is wrong."""
    plan = compile_workflow(spec)
    return [plan.steps[number].name for number in plan.order]


async def get(database: Database, ref: str, *, tenant: int) -> wire.Workflow:
    row = await row_of(database, ref, tenant=tenant)
    version = await _version(database, row, tenant=tenant)
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


async def delete(
    database: Database,
    ref: str,
    *,
    tenant: int,
    by: str,
    reason: str = "",
    detach: bool = False,
    seen: int | None = None,
) -> None:
    """No runs any more; those that have begun go on. `detach` as of any job; steps that were to start it fail then."""
    row = await row_of(database, ref, tenant=tenant)
    await jobs.delete(database, row.job_id, tenant=tenant, by=by, reason=reason, detach=detach, seen=seen)


async def row_of(database: Database, ref: str, *, tenant: int) -> JobRow:
    try:
        row = await refs.job_row(database, ref, tenant=tenant)
    except NotFound:
        raise NotFound(f"there is no workflow {ref!r}") from None
    if not isinstance(row.spec.task, WorkflowTask):
        raise NotFound(f"{ref!r} is a job, not a workflow")
    return row


async def _version(database: Database, row: JobRow, *, tenant: int) -> VersionRow:
    async with database.connection() as connection:
        found = await workflows.workflow_version(connection, tenant=tenant, job_id=row.job_id, version=row.version)
    if found is None:
        raise Conflict(f"there is a job {row.name!r} already", code="name_taken")
    return found


def _writer(
    plan: Plan, *, tenant: int, job_id: UUID, by: str, before: VersionRow, may_exceed: bool
) -> Callable[[Connection, int], Awaitable[None]]:
    async def write(connection: Connection, version: int) -> None:
        await _write(
            connection, plan, tenant=tenant, job_id=job_id, version=version, by=by, before=before, may_exceed=may_exceed
        )

    return write


async def _write(
    connection: Connection,
    plan: Plan,
    *,
    tenant: int,
    job_id: UUID,
    version: int,
    by: str,
    before: VersionRow | None,
    may_exceed: bool,
) -> None:
    """One version: definitions that an earlier one had are not written again, so an edit costs what it changes."""
    if before is None:
        steps_id = new_id(await database_now_ms(connection))
        await workflows.insert_steps_job(connection, tenant=tenant, steps_id=steps_id, name=plan.spec.name)
        known: dict[bytes, int] = {}
        last = 0
    else:
        steps_id = before.steps_id
        known = await workflows.definitions_of_steps(connection, tenant=tenant, job_id=job_id, version=before.version)
        last = await workflows.last_definition(connection, tenant=tenant, steps_id=steps_id)
    await workflows.insert_workflow_version(
        connection, tenant=tenant, job_id=job_id, version=version, spec=plan.spec, steps_id=steps_id, by=by
    )
    tasks = [(step, step.job) for step in plan.steps if step.job is not None]
    fresh: dict[int, JobSpec] = {}
    exceeds: set[int] = set()
    for step, job in tasks:
        if (key := content(job)) not in known:
            known[key] = last = last + 1
            fresh[last] = job
            pointer = f"/steps/{step.name}/timeout"
            if await exceeds_bound(connection, job, tenant=tenant, may_exceed=may_exceed, pointer=pointer):
                exceeds.add(last)
    if fresh:
        await workflows.insert_definitions(
            connection, tenant=tenant, steps_id=steps_id, specs=fresh, by=by, exceeds=exceeds
        )
    if tasks:
        specs = [line_of(job, job_id=steps_id) for _, job in tasks]
        line_refs = await lines.intern_lines(connection, tenant=tenant, specs=specs)
        rows = [
            StepRow(step.number, step.name, known[content(job)], job.queue_name, job.priority, ref)
            for (step, job), ref in zip(tasks, line_refs, strict=True)
        ]
        await workflows.insert_workflow_steps(
            connection, tenant=tenant, job_id=job_id, version=version, steps_id=steps_id, steps=rows
        )


async def version_of(database: Database, job_id: UUID, version: int, *, tenant: int) -> WorkflowSpec | None:
    """The definition that a version of a workflow had."""
    async with database.connection() as connection:
        found = await workflows.workflow_version(connection, tenant=tenant, job_id=job_id, version=version)
    return None if found is None else found.spec

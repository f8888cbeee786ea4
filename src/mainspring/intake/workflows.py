"""Apply, roll back and delete workflows.

A workflow is checked and compiled, then stored as a job, the definitions of its steps, and the lines they wait in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.job import JobSpec
from mainspring.domain.placement.line import line_of
from mainspring.domain.workflow.plan import Plan, PlanStep, compile_workflow
from mainspring.domain.workflow.spec import WorkflowSpec, job_of
from mainspring.ids import new_id
from mainspring.intake import jobs
from mainspring.intake.jobs.create import insert_job
from mainspring.intake.jobs.edit import replace_workflow
from mainspring.intake.jobs.rows import name_taken, version_conflict
from mainspring.intake.quota import schedule_charge
from mainspring.intake.runs.approvers import check_editor
from mainspring.intake.validate.isolation import check_isolation
from mainspring.intake.validate.queue_bounds import exceeds_bound
from mainspring.intake.validate.secrets import check_plaintext, check_references
from mainspring.store import lines, workflows
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.jobs import JobRow, job_by_name
from mainspring.store.workflows import StepRow, VersionRow, content
from mainspring.views.workflows import current_version, difference, get, row_of, version


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
    """Create a workflow, or make the one of that name equal to `spec`; started runs keep their version.

    Returns also what was done: created, changed or unchanged. With `seen`, only if that is still the current version;
    0: only if there is none. `rollback_to` is the earlier version that `spec` comes from, for the audit log.
    """
    plan = await asyncio.to_thread(compile_workflow, spec)
    async with database.connection() as connection:
        row = await job_by_name(connection, tenant=tenant, name=spec.name)
    if row is None:
        await _create(database, plan, tenant=tenant, by=by, may_exceed=may_exceed)
        return await get(database, spec.name, tenant=tenant), "created"
    if seen == 0:
        raise name_taken(spec.name)
    if seen is not None and seen != row.version:
        raise version_conflict(seen, row.version)
    changed = await _change(database, row, plan, by=by, may_exceed=may_exceed, rollback_to=rollback_to)
    return await get(database, spec.name, tenant=tenant), "changed" if changed else "unchanged"


async def _create(database: Database, plan: Plan, *, tenant: int, by: str, may_exceed: bool) -> None:
    adds = plan.spec.schedule is not None
    try:
        async with (
            schedule_charge(database, adds_schedule=adds, tenant=tenant, by=by) as charge,
            database.transaction() as connection,
        ):
            job_id = await insert_job(connection, job_of(plan.spec), tenant=tenant, by=by, charge=charge)
            await _write(
                connection, plan, tenant=tenant, job_id=job_id, version=1, by=by, before=None, may_exceed=may_exceed
            )
    except Taken:
        raise name_taken(plan.spec.name) from None


async def _change(
    database: Database, row: JobRow, plan: Plan, *, by: str, may_exceed: bool, rollback_to: int | None
) -> bool:
    """Write a new version; False if nothing differs."""
    before = await current_version(database, row, tenant=row.tenant)
    if before is None:
        raise name_taken(row.name)
    after = msgspec.structs.replace(plan.spec, paused=before.spec.paused)
    if before.spec == after:
        return False
    check_editor(before.spec, by)
    await replace_workflow(
        database,
        row.job_id,
        lambda old: msgspec.structs.replace(job_of(plan.spec), paused=old.paused),
        _writer(plan, tenant=row.tenant, job_id=row.job_id, by=by, before=before, may_exceed=may_exceed),
        tenant=row.tenant,
        by=by,
        seen=row.version,
        details=difference(before.spec, after),
        rollback_to=rollback_to,
    )
    return True


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
    """Write an earlier version as a new one. It is checked again, and neither pauses nor resumes the workflow."""
    row = await row_of(database, ref, tenant=tenant)
    wanted = await version(database, str(row.job_id), number, tenant=tenant)
    found, _ = await apply(
        database,
        wanted.spec,
        tenant=tenant,
        by=by,
        seen=row.version if seen is None else seen,
        may_exceed=may_exceed,
        rollback_to=number,
    )
    return found


async def check(spec: WorkflowSpec) -> list[str]:
    """The steps in an order in which they can run. Raises `Invalid` with every problem."""
    plan = await asyncio.to_thread(compile_workflow, spec)
    return [plan.steps[number].name for number in plan.order]


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
    """Delete a workflow; started runs continue. With `detach`, steps of other workflows that would start it fail."""
    row = await row_of(database, ref, tenant=tenant)
    if (before := await current_version(database, row, tenant=tenant)) is not None:
        check_editor(before.spec, by)
    await jobs.delete(database, row.job_id, tenant=tenant, by=by, reason=reason, detach=detach, seen=seen)


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
    """Write one version. Definitions that the previous one had are reused, so an edit costs what it changes."""
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
            await check_isolation(connection, job, tenant=tenant, pointer=f"/steps/{step.name}/task")
            check_plaintext(job, at=f"/steps/{step.name}")
            await check_references(connection, job, tenant=tenant, at=f"/steps/{step.name}")
            pointer = f"/steps/{step.name}/timeout"
            if await exceeds_bound(
                connection, job, tenant=tenant, may_exceed=may_exceed, pointer=pointer, workflow=plan.spec.name
            ):
                exceeds.add(last)
    if fresh:
        await workflows.insert_definitions(
            connection, tenant=tenant, steps_id=steps_id, specs=fresh, by=by, exceeds=exceeds
        )
    if tasks:
        rows = await _step_rows(connection, tasks, known, tenant=tenant, steps_id=steps_id)
        await workflows.insert_workflow_steps(
            connection, tenant=tenant, job_id=job_id, version=version, steps_id=steps_id, steps=rows
        )


async def _step_rows(
    connection: Connection,
    tasks: list[tuple[PlanStep, JobSpec]],
    definitions: dict[bytes, int],
    *,
    tenant: int,
    steps_id: UUID,
) -> list[StepRow]:
    specs = [line_of(job, job_id=steps_id) for _, job in tasks]
    line_refs = await lines.intern_lines(connection, tenant=tenant, specs=specs)
    return [
        StepRow(step.number, step.name, definitions[content(job)], job.queue_name, job.priority, ref)
        for (step, job), ref in zip(tasks, line_refs, strict=True)
    ]

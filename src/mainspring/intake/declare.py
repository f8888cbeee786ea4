"""Declare jobs from code: create, update, or leave unchanged. Any number of workers may repeat it."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound, TooMany
from mainspring.domain.grants import WorkerGrants
from mainspring.domain.job import JobSpec
from mainspring.domain.task import PythonTask
from mainspring.intake import jobs
from mainspring.store import jobs as job_store
from mainspring.store.db import Database
from mainspring.store.jobs import JobRow
from mainspring.views import refs

MAX_TRIES = 5


async def declare(
    database: Database,
    spec: JobSpec,
    *,
    tenant: int,
    by: str,
    may_exceed: bool = False,
    grants: WorkerGrants | None = None,
) -> wire.Declared:
    """Declare one job. A worker's token may only declare jobs that call functions, for queues that it grants."""
    if not isinstance(spec.task, PythonTask):
        return _refused(spec, "a worker can only declare jobs that call functions")
    if grants is not None and (refusal := next(grants.refusals([_queue(spec)]), None)) is not None:
        return _refused(spec, f"{refusal.message}; {refusal.hint}")
    try:
        for _ in range(MAX_TRIES):  # another worker may create it, or a user delete it, in between
            declared = await _try(database, spec, tenant=tenant, by=by, may_exceed=may_exceed, grants=grants)
            if declared is not None:
                return declared
    except (Invalid, TooMany) as error:
        problem = error.problems[0] if error.problems else None
        hint = f" ({problem.hint})" if problem is not None and problem.hint else ""
        return _refused(spec, f"{error.message}{hint}")
    return _refused(spec, "the job kept changing; try again")


async def _try(
    database: Database, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool, grants: WorkerGrants | None
) -> wire.Declared | None:
    try:
        row = await refs.job_row(database, spec.name, tenant=tenant)
    except NotFound:
        try:
            job_id = await jobs.create(database, spec, tenant=tenant, by=by, may_exceed=may_exceed)
        except Conflict:
            return None
        await _mark(database, job_id, 1, tenant=tenant)
        return wire.Declared(name=spec.name, change="created", version=1)
    if not isinstance(row.spec.task, PythonTask):
        return _refused(
            spec, f"there is a job {spec.name!r} that was not declared by code: rename the function, or delete the job"
        )
    if grants is not None and (refusal := next(grants.refusals([_queue(row.spec)]), None)) is not None:
        return _refused(spec, f"there is a job {spec.name!r} in another queue, and {refusal.message}")
    try:
        await jobs.replace_spec(database, row.job_id, spec, tenant=tenant, by=by, may_exceed=may_exceed)
    except jobs.Unchanged:
        if row.declared_version != row.version:
            await _mark(database, row.job_id, row.version, tenant=tenant)
        return wire.Declared(name=spec.name, change="unchanged", version=row.version)
    except NotFound:
        return None
    found = await refs.job_row(database, str(row.job_id), tenant=tenant)
    await _mark(database, row.job_id, found.version, tenant=tenant)
    return wire.Declared(name=spec.name, change="updated", version=found.version, warning=_undone(row))


async def _mark(database: Database, job_id: UUID, version: int, *, tenant: int) -> None:
    async with database.connection() as connection:
        await job_store.mark_declared(connection, tenant=tenant, job_id=job_id, version=version)


def _undone(row: JobRow) -> str | None:
    """What the declaration has replaced, if a user edited the job since code declared it last."""
    if row.declared_version is None or row.version <= row.declared_version:
        return None
    return (
        f"replaced version {row.version}, an edit by {row.created_by}: "
        f"change the code to keep it, or see it with: mainspring jobs versions {row.name}"
    )


def _queue(spec: JobSpec) -> str:
    try:
        return spec.queue_name
    except ValueError:  # an invalid duration, which validation reports
        return "short"


def _refused(spec: JobSpec, why: str) -> wire.Declared:
    return wire.Declared(name=spec.name, change="refused", problem=why)

"""Declare jobs from code: create, update, or leave unchanged. Any number of workers may repeat it."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.job import JobSpec
from mainspring.domain.task import PythonTask
from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.views import refs

MAX_TRIES = 5


async def declare(
    database: Database, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool = False
) -> wire.Declared:
    """Declare one job. A worker's token may only declare jobs that call functions."""
    if not isinstance(spec.task, PythonTask):
        return _refused(spec, "a worker can only declare jobs that call functions")
    try:
        for _ in range(MAX_TRIES):  # another worker may create it, or a user delete it, in between
            if (declared := await _try(database, spec, tenant=tenant, by=by, may_exceed=may_exceed)) is not None:
                return declared
    except Invalid as error:
        problem = error.problems[0] if error.problems else None
        hint = f" ({problem.hint})" if problem is not None and problem.hint else ""
        return _refused(spec, f"{error.message}{hint}")
    return _refused(spec, "the job kept changing; try again")


async def _try(database: Database, spec: JobSpec, *, tenant: int, by: str, may_exceed: bool) -> wire.Declared | None:
    try:
        row = await refs.job_row(database, spec.name, tenant=tenant)
    except NotFound:
        try:
            await jobs.create(database, spec, tenant=tenant, by=by, may_exceed=may_exceed)
        except Conflict:
            return None
        return wire.Declared(name=spec.name, change="created", version=1)
    if not isinstance(row.spec.task, PythonTask):
        return _refused(
            spec, f"there is a job {spec.name!r} that was not declared by code: rename the function, or delete the job"
        )
    try:
        await jobs.replace_spec(database, row.job_id, spec, tenant=tenant, by=by, may_exceed=may_exceed)
    except jobs.Unchanged:
        return wire.Declared(name=spec.name, change="unchanged", version=row.version)
    except NotFound:
        return None
    found = await refs.job_row(database, str(row.job_id), tenant=tenant)
    return wire.Declared(name=spec.name, change="updated", version=found.version)


def _refused(spec: JobSpec, why: str) -> wire.Declared:
    return wire.Declared(name=spec.name, change="refused", problem=why)

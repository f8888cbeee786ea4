"""Dependencies between jobs: a job is executed when all jobs it needs have succeeded.

A job without a schedule is executed once when all its needs have succeeded since its last execution. The transaction
that inserts it locks the job's row and consumes the successes, so it happens once. A job with a schedule is executed at
its fires, each of which waits for the needs; the transaction that settles the last need releases it.
"""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.domain.duration import optional_seconds
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.ids import shard_of
from mainspring.intake.dependents import require_parent
from mainspring.intake.executions import Submission, end_latest, insert_one
from mainspring.intake.jobs.rows import action_on
from mainspring.store import audit, jobs, needs, overlaps, shards
from mainspring.store.db import Connection, Database, Taken
from mainspring.views.dependencies import dependencies_of
from mainspring.views.refs import job_row

BATCH = 500
NO_ONE_TIME = "give it a recurring schedule, or none to execute it after its needs"


async def add(database: Database, ref: str, request: wire.NewDependency, *, tenant: int, by: str) -> wire.Dependencies:
    """Make a job need another one. A cycle is refused, with its path in the message."""
    child = await job_row(database, ref, tenant=tenant)
    parent = await job_row(database, request.job, tenant=tenant)
    timeout_s, wait_s = _positive_seconds("/timeout", request.timeout), _positive_seconds("/wait", request.wait)
    if wait_s is not None and child.spec.schedule is None:
        raise invalid("/wait", f"{child.name} has no schedule, so `wait` does not apply", hint="leave it out")
    try:
        async with database.transaction() as connection:
            await needs.lock_tenant(connection, tenant=tenant)
            change, _ = await shards.bump_shard(connection, shard=shard_of(child.job_id))
            await _refuse_one_time(connection, child, tenant=tenant)
            await require_parent(connection, parent, tenant=tenant)
            await _refuse_cycle(connection, child, parent, tenant=tenant)
            await needs.insert_need(
                connection,
                tenant=tenant,
                child=child.job_id,
                parent=parent.job_id,
                timeout_s=timeout_s,
                wait_s=wait_s,
                by=by,
            )
            await needs.mark_needing(connection, tenant=tenant, child=child.job_id, change=change)
            await audit.record(
                connection,
                action_on(child.spec, "need"),
                child.job_id,
                tenant=tenant,
                by=by,
                name=child.name,
                parent=parent.name,
            )
    except Taken:
        raise Conflict(f"{child.name} needs {parent.name} already", code="already_needed") from None
    return await dependencies_of(database, ref, tenant=tenant)


def _positive_seconds(pointer: str, duration: str | int | float | None) -> float | None:
    try:
        seconds = optional_seconds(duration)
    except ValueError as error:
        raise invalid(pointer, str(error), hint="seconds, 90s, 10m, 1h30m or PT3H") from None
    if seconds is not None and seconds <= 0:
        raise invalid(pointer, f"{duration!r} must be positive", hint="leave it out for no limit")
    return seconds


async def _refuse_one_time(connection: Connection, child: jobs.JobRow, *, tenant: int) -> None:
    row = await jobs.job_by_id(connection, tenant=tenant, job_id=child.job_id)
    if row is None or row.deleted_at is not None:
        raise NotFound(f"there is no job {child.name!r}")
    if row.spec.schedule is not None and row.schedule_id is None:
        raise invalid("/job", f"{row.name} has a one-time schedule", hint=NO_ONE_TIME)


async def _refuse_cycle(connection: Connection, child: jobs.JobRow, parent: jobs.JobRow, *, tenant: int) -> None:
    way: list[str] | None = [child.name]
    if child.job_id != parent.job_id:
        way = await needs.path_between(connection, tenant=tenant, start=child.job_id, end=parent.job_id)
    if way is not None:
        message = f"a cycle: {' → '.join([*way, child.name])}"
        raise Invalid(message, code="cycle", problems=(Problem("/job", message, "remove one of these needs"),))


async def remove(database: Database, ref: str, parent: str, *, tenant: int, by: str) -> None:
    """Remove a dependency. `parent` may be the name of a deleted job, which other requests do not find."""
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        needed = await needs.needs_of(connection, tenant=tenant, child=row.job_id)
    named = [n for n in needed if parent in (n.job, str(n.job_id))]
    if not named:
        raise NotFound(f"{row.name} does not need {(await job_row(database, parent, tenant=tenant)).name}")
    other = min(named, key=lambda n: n.deleted_at is not None)
    async with database.transaction() as connection:
        change, _ = await shards.bump_shard(connection, shard=shard_of(row.job_id))
        await overlaps.lock_jobs(connection, job_ids=[row.job_id])  # before its needs, in the order of execute_ready
        if not await needs.delete_need(connection, tenant=tenant, child=row.job_id, parent=other.job_id):
            raise NotFound(f"{row.name} does not need {other.job}")
        await needs.mark_needing(connection, tenant=tenant, child=row.job_id, change=change)
        await needs.release(connection, children=[row.job_id])
        await audit.record(
            connection,
            action_on(row.spec, "unneed"),
            row.job_id,
            tenant=tenant,
            by=by,
            name=row.name,
            parent=other.job,
        )


async def free(database: Database, ref: str, reason: str, *, freed_as: str, tenant: int, by: str) -> int:
    """Release the jobs that need this one without its success, and cancel its live execution.

    Each released dependency records the user, the time and the reason. Returns how many were released.
    """
    row = await job_row(database, ref, tenant=tenant)
    if not reason.strip():
        raise invalid("/reason", "a reason is required", hint="say why; it is kept in the audit log")
    words = f"{'completed' if freed_as == 'forced' else 'skipped'} by {by}: {reason}"
    async with database.transaction() as connection:
        await overlaps.lock_jobs(connection, job_ids=[row.job_id])
        ended = await end_latest(connection, row.job_id, words, tenant=tenant)
        freed = await needs.free_needs(
            connection, tenant=tenant, parent=row.job_id, freed_as=freed_as, by=by, reason=reason
        )
        if not freed and ended is None:
            raise Conflict(
                f"no job needs {row.name} and it has no live execution, so nothing was changed", code="not_needed"
            )
        if ended is not None:
            await overlaps.release_blocked(connection, job_ids=[row.job_id])
        await needs.release(connection, children=freed)
        await audit.record(
            connection,
            action_on(row.spec, "force_complete" if freed_as == "forced" else "skip"),
            row.job_id,
            tenant=tenant,
            by=by,
            name=row.name,
            reason=reason,
            freed=len(freed),
            execution_id=None if ended is None else str(ended),
        )
    await execute_ready(database)
    return len(freed)


async def execute_ready(database: Database) -> int:
    """Execute every job whose needs are met. Repeatable: the successes are consumed with the insert."""
    executed = 0
    async with database.connection() as connection:
        ready = await needs.ready_children(connection, limit=BATCH)
    for child in ready:
        async with database.transaction() as connection:
            await overlaps.lock_jobs(connection, job_ids=[child.job_id])
            executed += await _execute(connection, child.job_id)
    return executed


async def release_waiting(database: Database) -> int:
    """Release fires whose needs are met but that settling has not released: the periodic fallback."""
    async with database.connection() as connection:
        children = await needs.waiting_children(connection, limit=BATCH)
    if not children:
        return 0
    async with database.transaction() as connection:
        return len(await needs.release(connection, children=children))


async def _execute(connection: Connection, job_id: UUID) -> int:
    for child in await needs.ready_children(connection, child=job_id, limit=1):
        row = await jobs.job_by_id(connection, tenant=child.tenant, job_id=job_id)
        assert row is not None, "its row is locked"
        params = {needs.NOT_RUN: child.not_run} if needs.NOT_RUN in row.spec.params else None
        submission = Submission(child.tenant, f"after {', '.join(child.parents)}"[:200], job_id, None, params)
        await insert_one(connection, submission, None)
        await needs.use_up_needs(connection, tenant=child.tenant, child=job_id)
        return 1
    return 0

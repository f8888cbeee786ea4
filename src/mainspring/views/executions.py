"""Executions with their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring import ports, wire
from mainspring.clock import instant
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.execution import LIVE, STATES, fire_ms_of
from mainspring.store import audit, executions
from mainspring.store.db import Database, database_now_ms
from mainspring.views.refs import check_limit, execution_id, parse_cursor, past_job

LOOKED_BACK = 10_000
"""Among so many executions the last one of a user is looked for."""


async def get(database: Database, ref: str | UUID, *, tenant: int) -> wire.Execution:
    """One execution with its attempts."""
    found_id = ref if isinstance(ref, UUID) else await execution_id(database, ref, tenant=tenant)
    async with database.reading() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=found_id)
        # A first attempt that is running or succeeded has no row.
        if found is not None and (
            found.attempt > 1 or (found.attempt == 1 and found.state not in ("running", "succeeded"))
        ):
            found.attempts.extend(await executions.list_attempts(connection, tenant=tenant, execution_id=found_id))
    if found is None and database.archive is not None:
        found = await database.archive.execution(database, found_id, tenant=tenant)
    if found is None:
        raise NotFound(f"there is no execution {ref}")
    return found


async def latest(database: Database, *, tenant: int, by: str) -> wire.Execution:
    """The execution that `by` requested last; if there is none, the one that was due last.

    Ids begin with the due time, so the newest id may be of a fire years ahead. One that `by` requested for later is
    found through the audit log.
    """
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        due = UUID(int=(now_ms + 1) << 80)
        found = await executions.latest_requested(connection, tenant=tenant, by=by, before=due, most=LOOKED_BACK)
        asked = await audit.latest_submission(connection, tenant=tenant, by=by)
        if asked is not None and (found is None or asked[0] > instant(fire_ms_of(found))):
            found = asked[1]
        if found is None:
            after_all = parse_cursor(None)
            found = await executions.latest_requested(
                connection, tenant=tenant, by=by, before=after_all, most=LOOKED_BACK
            )
    if found is None:
        raise NotFound("@last: there are no executions yet")
    return await get(database, found, tenant=tenant)


async def list_executions(
    database: Database,
    *,
    tenant: int,
    cursor: str | None = None,
    limit: int = 50,
    job: str | None = None,
    states: Sequence[str] = (),
) -> wire.Page[wire.Execution]:
    """Executions, newest first."""
    check_limit(limit)
    for state in states:
        if state not in STATES:
            raise invalid("/state", f"{state!r} is not a state", hint=f"one of {', '.join(STATES)}")
    before = parse_cursor(cursor)
    job_id = None if job is None else (await past_job(database, job, tenant=tenant)).job_id
    # Other states are planned for their values: the constraints of both tables exclude one of them.
    kept = not states or set(states) == {"running"} or executions.EXCEPTIONS.issuperset(states)
    lend = database.reading if kept else database.connection
    async with lend() as connection:
        rows = await executions.list_executions(
            connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id, states=states
        )
    if database.archive is None or (states and LIVE.issuperset(states)):
        page = rows[:limit]
        return wire.Page(items=page, next_cursor=str(page[-1].execution_id) if len(rows) > limit else None)
    return await _with_archived(
        database, database.archive, rows, tenant=tenant, before=before, limit=limit, job_id=job_id, states=states
    )


async def _with_archived(
    database: Database,
    archive: ports.Archive,
    rows: Sequence[wire.Execution],
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_id: UUID | None,
    states: Sequence[str],
) -> wire.Page[wire.Execution]:
    """Merge a page with executions of the archive. It may be short or empty and have a next one: reads are bounded."""
    above = rows[limit].execution_id if len(rows) > limit else UUID(int=0)
    old = await archive.page(
        database, tenant=tenant, above=above, before=before, limit=limit + 1, job_id=job_id, states=states
    )
    by_id = {e.execution_id: e for e in (*old.items, *rows)}  # a day that was archived meanwhile is in both
    done_to = old.complete_above
    merged = [by_id[key] for key in sorted(by_id, reverse=True) if done_to is None or key > done_to]
    page = merged[:limit]
    if len(merged) > limit:
        return wire.Page(items=page, next_cursor=str(page[-1].execution_id))
    return wire.Page(items=page, next_cursor=None if done_to is None else str(UUID(int=done_to.int + 1)))

"""Executions with their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.execution import STATES
from mainspring.store import executions
from mainspring.store.db import Database
from mainspring.views.refs import check_limit, execution_id, job_row, parse_cursor


async def get(database: Database, ref: str | UUID, *, tenant: int) -> wire.Execution:
    """One execution with its attempts."""
    found_id = ref if isinstance(ref, UUID) else await execution_id(database, ref, tenant=tenant)
    async with database.reading() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=found_id)
        if found is None:
            raise NotFound(f"there is no execution {ref}")
        # A first attempt that is running or succeeded has no row.
        if found.attempt > 1 or (found.attempt == 1 and found.state not in ("running", "succeeded")):
            found.attempts.extend(await executions.list_attempts(connection, tenant=tenant, execution_id=found_id))
    return found


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
    job_id = None if job is None else (await job_row(database, job, tenant=tenant)).job_id
    # Other states are planned for their values: the constraints of both tables exclude one of them.
    lend = database.reading if not states or set(states) == {"running"} else database.connection
    async with lend() as connection:
        rows = await executions.list_executions(
            connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id, states=states
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].execution_id) if len(rows) > limit else None)

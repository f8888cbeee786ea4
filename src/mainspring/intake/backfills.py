"""Create, pause, resume and cancel backfills: ranges of past fires of a job that are executed on request."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import Conflict, Invalid, NotFound, invalid
from mainspring.domain.schedule.backfill import BackfillState, Order, Range, wanted
from mainspring.domain.schedule.budget import BATCH_STEPS, steps
from mainspring.ids import new_id
from mainspring.store import audit, backfills, overlaps
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views import refs
from mainspring.views.backfills import no_such_backfill

MOST_INSTANTS = 100_000
PREVIEWED_INSTANTS = 100


async def plan(database: Database, ref: str, request: wire.BackfillRequest, *, tenant: int) -> wire.BackfillPlan:
    """What `create` would do; writes nothing."""
    row = await refs.job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        span, _ = await _range(connection, row, request)
        instants = await _instants(span, request.order)
        outcomes = await backfills.instant_outcomes(connection, tenant=tenant, job_id=row.job_id, instants=instants)
    chosen = wanted(instants, outcomes, request.reprocess)
    return wire.BackfillPlan(
        instants=len(chosen),
        left_out=len(instants) - len(chosen),
        first=instant(min(chosen)) if chosen else None,
        last=instant(max(chosen)) if chosen else None,
        page=[instant(at) for at in chosen[:PREVIEWED_INSTANTS]],
    )


async def create(database: Database, ref: str, request: wire.BackfillRequest, *, tenant: int, by: str) -> UUID:
    """Create a backfill; the leader feeds its executions. Works on a paused job and does not affect its schedule."""
    row = await refs.job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        span, to = await _range(connection, row, request)
    instants = await _instants(span, request.order)
    async with database.transaction() as connection:
        backfill_id = new_id(await database_now_ms(connection))
        assert row.schedule_id is not None
        if not await backfills.insert_backfill(
            connection,
            tenant=tenant,
            backfill_id=backfill_id,
            job_id=row.job_id,
            schedule_id=row.schedule_id,
            request=request,
            to=to,
            instants=len(instants),
            created_by=by,
        ):
            raise Conflict("the job's schedule was changed meanwhile; check it, then try again")
        await audit.record(
            connection,
            "backfill.create",
            backfill_id,
            tenant=tenant,
            by=by,
            name=row.name,
            instants=len(instants),
            **{"from": request.from_.isoformat(), "to": to.isoformat()},
        )
    return backfill_id


async def pause(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    """Create no more executions; live ones continue."""
    await _set(database, backfill_id, "paused", ("running",), "backfill.pause", tenant=tenant, by=by)


async def resume(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    await _set(database, backfill_id, "running", ("paused",), "backfill.resume", tenant=tenant, by=by)


async def cancel(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    """Create no more executions, and cancel the live ones."""
    await _set(database, backfill_id, "cancelled", ("running", "paused"), "backfill.cancel", tenant=tenant, by=by)


async def _set(
    database: Database,
    backfill_id: UUID,
    to: BackfillState,
    of: tuple[BackfillState, ...],
    action: str,
    *,
    tenant: int,
    by: str,
) -> None:
    async with database.transaction() as connection:
        job_id = await backfills.set_backfill(connection, tenant=tenant, backfill_id=backfill_id, to=to, of=of)
        if job_id is None:
            found = await backfills.backfill_by_id(connection, tenant=tenant, backfill_id=backfill_id)
            if found is None:
                raise no_such_backfill(backfill_id)
            if found.state != to:
                raise Conflict(f"the backfill is {found.state} already", code="already_final")
            return
        if to == "cancelled":
            await overlaps.lock_jobs(connection, job_ids=[job_id])
            await backfills.cancel_backfill_executions(
                connection, tenant=tenant, backfill_id=backfill_id, reason=f"backfill cancelled by {by}"
            )
        found = await backfills.backfill_by_id(connection, tenant=tenant, backfill_id=backfill_id)
        assert found is not None, "its row is locked"
        await audit.record(connection, action, backfill_id, tenant=tenant, by=by, name=found.job)


async def _range(connection: Connection, row: JobRow, request: wire.BackfillRequest) -> tuple[Range, datetime]:
    """The range in the job's current schedule, and its end."""
    if row.deleted_at is not None:
        raise NotFound(f"there is no job {row.name!r}")
    if row.schedule_key is None:
        raise Invalid(f"{row.name} has no recurring schedule, so there is nothing to backfill", code="no_schedule")
    now = instant(int(await database_now_ms(connection)))
    to = now if request.to is None else request.to
    if to > now:
        raise invalid("/to", f"{to.isoformat()} is in the future", hint="later instants fire on schedule")
    if to <= request.from_:
        raise invalid("/to", "`to` must be after `from`", hint="`to` itself is not included")
    return backfills.clipped(row.schedule_key, request.from_, to, row.start_at, row.end_at), to


async def _instants(span: Range, order: Order) -> list[int]:
    # A hundred thousand instants of a cron expression take about a second: not on the event loop.
    found = await asyncio.to_thread(_following, span, order)
    if not found:
        raise invalid("/from", "the job has no instant in this range", hint="check its schedule, start and end")
    if len(found) > MOST_INSTANTS:
        raise invalid("/from", f"the range has more than {MOST_INSTANTS:,} instants", hint="create several backfills")
    return found


def _following(span: Range, order: Order) -> list[int]:
    with steps(BATCH_STEPS):
        found = span.following(None, order, MOST_INSTANTS + 1)
        if len(found) <= MOST_INSTANTS and found:
            # Fewer than asked for: there are no more, or the budget has ended. Then this raises.
            span.following(found[-1], order, 1)
        return found

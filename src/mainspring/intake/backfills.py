"""Backfills: executing a range of a job's past instants, apart from its cadence."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Invalid, NotFound, invalid
from mainspring.domain.schedule.backfill import BackfillState, Order, Range, wanted
from mainspring.ids import new_id
from mainspring.store import audit, backfills, executions, overlaps
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views import refs

MOST_INSTANTS = 100_000
PLANNED = 100
"""So many instants a dry run lists."""


async def plan(database: Database, ref: str, request: wire.BackfillRequest, *, tenant: int) -> wire.BackfillPlan:
    """What `create` would do now. Nothing is written."""
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
        page=[instant(at) for at in chosen[:PLANNED]],
    )


async def create(
    database: Database, ref: str, request: wire.BackfillRequest, *, tenant: int, by: str, key: str | None = None
) -> UUID:
    """A new backfill; its executions follow by themselves. Works on a paused job, and leaves the cadence alone.

    With a `key`, the same request is answered with the same backfill for a day.
    """
    row = await refs.job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        span, to = await _range(connection, row, request)
    instants = await _instants(span, request.order)
    async with database.transaction() as connection:
        backfill_id = new_id(await database_now_ms(connection))
        if key is not None:
            known_id = await _known(connection, row, request, key, backfill_id)
            if known_id != backfill_id:
                return known_id
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
            raise Conflict("the job's schedule was changed meanwhile; look at it and try again")
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


async def _known(
    connection: Connection, row: JobRow, request: wire.BackfillRequest, key: str, backfill_id: UUID
) -> UUID:
    """What the key stands for: this backfill, if it is new. Keys of submissions are others."""
    digest = hashlib.sha256(b"backfill" + encode(request)).digest()
    known_id, first_digest, _ = await executions.insert_idempotency_key(
        connection, tenant=row.tenant, job_id=row.job_id, key=f"backfill:{key}", execution_id=backfill_id, digest=digest
    )
    if first_digest != digest:
        raise Conflict(f"the key {key!r} was used for a different request", code="key_reused")
    return known_id


async def get(database: Database, backfill_id: UUID, *, tenant: int) -> wire.Backfill:
    async with database.connection() as connection:
        found = await backfills.backfill_by_id(connection, tenant=tenant, backfill_id=backfill_id)
    if found is None:
        raise _unknown(backfill_id)
    return found


async def list_backfills(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50, job: str | None = None
) -> wire.Page[wire.Backfill]:
    """Newest first; how their executions fared is told of one backfill at a time."""
    refs.check_limit(limit)
    before = refs.parse_cursor(cursor)
    job_id = None if job is None else (await refs.job_row(database, job, tenant=tenant)).job_id
    async with database.connection() as connection:
        rows = await backfills.list_backfills(connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id)
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].backfill_id) if len(rows) > limit else None)


async def pause(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    """No more executions of it are made; those that live go on."""
    await _set(database, backfill_id, "paused", ("running",), "backfill.pause", tenant=tenant, by=by)


async def resume(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    await _set(database, backfill_id, "running", ("paused",), "backfill.resume", tenant=tenant, by=by)


async def cancel(database: Database, backfill_id: UUID, *, tenant: int, by: str) -> None:
    """Nothing more of it is made, and what lives of it is cancelled."""
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
                raise _unknown(backfill_id)
            if found.state != to:
                raise Conflict(f"the backfill is {found.state} already", code="already_final")
            return
        if to == "cancelled":
            await overlaps.lock_jobs(connection, job_ids=[job_id])
            await backfills.cancel_backfill_executions(
                connection, tenant=tenant, backfill_id=backfill_id, reason=f"backfill cancelled by {by}"
            )
        found = await backfills.backfill_by_id(connection, tenant=tenant, backfill_id=backfill_id)
        assert found is not None, "its row is held"
        await audit.record(connection, action, backfill_id, tenant=tenant, by=by, name=found.job)


async def _range(connection: Connection, row: JobRow, request: wire.BackfillRequest) -> tuple[Range, datetime]:
    """The range in the job's schedule as it is now, and its end."""
    if row.deleted_at is not None:
        raise NotFound(f"there is no job {row.name!r}")
    if row.schedule_key is None:
        raise Invalid(f"{row.name} has no recurring schedule, so it has no instants to fill in", code="no_schedule")
    now = instant(int(await database_now_ms(connection)))
    to = now if request.to is None else request.to
    if to > now:
        raise invalid("/to", f"{to.isoformat()} has not come yet", hint="what is due later fires by itself")
    if to <= request.from_:
        raise invalid("/to", "the range ends before it begins", hint="`to` is after `from`, and not included")
    return backfills.clipped(row.schedule_key, request.from_, to, row.start_at, row.end_at), to


async def _instants(span: Range, order: Order) -> list[int]:
    # A hundred thousand instants of a cron expression take about a second: not on the event loop.
    found = await asyncio.to_thread(span.following, None, order, MOST_INSTANTS + 1)
    if not found:
        raise invalid("/from", "the job has no instant in this range", hint="see its schedule, its start and its end")
    if len(found) > MOST_INSTANTS:
        raise invalid("/from", f"the range has more than {MOST_INSTANTS:,} instants", hint="make several backfills")
    return found


def _unknown(backfill_id: UUID) -> NotFound:
    return NotFound(f"there is no backfill {backfill_id}")

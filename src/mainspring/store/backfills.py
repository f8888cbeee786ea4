"""Backfills: ranges of past instants, their cursors and executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports, wire
from mainspring.clock import instant, millis
from mainspring.domain.execution import State, execution_id
from mainspring.domain.schedule.backfill import BackfillState, Order, Range, Reprocess, backfill_key
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store.db import Connection
from mainspring.store.hints import hint, hint_cancelled, hint_queued
from mainspring.store.queries import q

_LAST_OF_MS = (1 << 80) - 1


@dataclass(frozen=True, slots=True)
class LockedBackfill:
    """A running backfill whose row is locked."""

    backfill_id: UUID
    tenant: int
    job_id: UUID
    range: Range
    reprocess: Reprocess
    order: Order
    concurrency: int
    cursor_ms: int | None
    job_deleted: bool


def clipped(key: str, from_at: datetime, to_at: datetime, start_at: datetime | None, end_at: datetime | None) -> Range:
    """Return the instants of a schedule within a range, and within the job's start and end."""
    from_ms, to_ms = _ceil(from_at), _ceil(to_at)
    if start_at is not None:
        from_ms = max(from_ms, millis(start_at))
    if end_at is not None:
        to_ms = min(to_ms, millis(end_at) + 1)
    return Range(compile_key(key), from_ms, to_ms)


def _ceil(at: datetime) -> int:
    """Round up to whole milliseconds."""
    return millis(at) + (instant(millis(at)) < at)


async def insert_backfill(
    connection: Connection,
    *,
    tenant: int,
    backfill_id: UUID,
    job_id: UUID,
    schedule_id: int,
    request: wire.BackfillRequest,
    to: datetime,
    instants: int,
    created_by: str,
) -> bool:
    """Insert a backfill; return whether the job still has that schedule."""
    row = await connection.fetchrow(
        q("insert_backfill"),
        backfill_id,
        tenant,
        job_id,
        request.from_,
        to,
        request.reprocess,
        request.order == "newest",
        request.concurrency,
        request.priority,
        request.params,
        instants,
        created_by,
        schedule_id,
    )
    hint(connection, ports.BACKFILLS)
    return row is not None


async def backfill_by_id(connection: Connection, *, tenant: int, backfill_id: UUID) -> wire.Backfill | None:
    row = await connection.fetchrow(q("backfill_by_id"), backfill_id, tenant)
    if row is None:
        return None
    low, high = UUID(int=millis(row["from_at"]) << 80), UUID(int=(millis(row["to_at"]) << 80) | _LAST_OF_MS)
    counts = await connection.fetch(q("backfill_progress"), backfill_id, tenant, low, high)
    return _backfill(row, {r["state"]: r["n"] for r in counts})


async def list_backfills(
    connection: Connection, *, tenant: int, before: UUID, limit: int, job_id: UUID | None = None
) -> list[wire.Backfill]:
    """Return a page without execution counts, which would read all executions."""
    rows = await connection.fetch(q("list_backfills"), tenant, before, limit, job_id)
    return [_backfill(r, {}) for r in rows]


async def open_backfills(connection: Connection, *, limit: int) -> list[UUID]:
    """Return running backfills of all tenants."""
    return [r["backfill_id"] for r in await connection.fetch(q("open_backfills"), limit)]


async def lock_backfill(connection: Connection, *, backfill_id: UUID) -> LockedBackfill | None:
    """Lock a backfill of any tenant; None if it is not running."""
    r = await connection.fetchrow(q("lock_backfill"), backfill_id)
    if r is None:
        return None
    return LockedBackfill(
        r["backfill_id"],
        r["tenant_id"],
        r["job_id"],
        clipped(r["schedule_key"], r["from_at"], r["to_at"], r["start_at"], r["end_at"]),
        r["reprocess"],
        _order(r),
        r["concurrency"],
        None if r["cursor_at"] is None else millis(r["cursor_at"]),
        r["job_deleted"],
    )


async def backfill_live(connection: Connection, *, backfill_id: UUID) -> int:
    return int(await connection.fetchval(q("backfill_live"), backfill_id))


async def instant_outcomes(
    connection: Connection, *, tenant: int, job_id: UUID, instants: Sequence[int]
) -> dict[int, State]:
    """Return the state of the latest execution of each instant between the first and the last of these."""
    low_ms, high_ms = min(instants), max(instants)
    rows = await connection.fetch(
        q("instant_outcomes"),
        job_id,
        tenant,
        UUID(int=low_ms << 80),
        UUID(int=(high_ms << 80) | _LAST_OF_MS),
        instant(low_ms),
    )
    return {millis(r["fire_at"]): r["state"] for r in rows}


async def insert_backfill_executions(connection: Connection, *, backfill: LockedBackfill, fires: Sequence[int]) -> None:
    ids = [execution_id(backfill.job_id, at, backfill_key(backfill.backfill_id, at)) for at in fires]
    due = [instant(at) for at in fires]
    hint_queued(connection, await connection.fetch(q("insert_backfill_executions"), backfill.backfill_id, ids, due))


async def move_backfill(
    connection: Connection, *, backfill_id: UUID, was_ms: int | None, to_ms: int, made: int, left_out: int
) -> None:
    moved = await connection.fetchval(
        q("move_backfill"), backfill_id, None if was_ms is None else instant(was_ms), instant(to_ms), made, left_out
    )
    assert moved is not None, "its row is locked"


async def end_backfill(connection: Connection, *, backfill_id: UUID, state: BackfillState) -> bool:
    """End a backfill unless it has a live execution; return whether it ended."""
    return await connection.fetchval(q("end_backfill"), backfill_id, state) is not None


async def set_backfill(
    connection: Connection, *, tenant: int, backfill_id: UUID, to: BackfillState, of: Sequence[BackfillState]
) -> UUID | None:
    """Set the state of a backfill; return its job, or None if it was in none of the states `of`."""
    job_id: UUID | None = await connection.fetchval(q("set_backfill"), backfill_id, tenant, to, list(of))
    hint(connection, ports.BACKFILLS)
    return job_id


async def cancel_backfill_executions(connection: Connection, *, tenant: int, backfill_id: UUID, reason: str) -> None:
    """Cancel its executions. They are locked first, so that none changes state between the two statements."""
    await connection.execute(q("lock_backfill_executions"), backfill_id, tenant)
    await connection.execute(q("cancel_backfill_pending"), backfill_id, tenant, reason)
    hint_cancelled(connection, await connection.fetch(q("cancel_backfill_running"), backfill_id, tenant, reason))


def _order(row: Any) -> Order:
    return "newest" if row["newest_first"] else "oldest"


def _backfill(r: Any, executions: dict[str, int]) -> wire.Backfill:
    return wire.Backfill(
        backfill_id=r["backfill_id"],
        job_id=r["job_id"],
        job=r["job_name"],
        state=r["state"],
        from_=r["from_at"],
        to=r["to_at"],
        reprocess=r["reprocess"],
        order=_order(r),
        concurrency=r["concurrency"],
        priority=r["priority"],
        params=r["params"],
        instants=r["instants"],
        made=r["made"],
        left_out=r["left_out"],
        executions=executions,
        created_at=r["created_at"],
        created_by=r["created_by"],
        ended_at=r["ended_at"],
    )


async def forget_backfills(connection: Connection, *, after_s: float, limit: int) -> int:
    """Delete old backfills of all tenants; return how many."""
    return len(await connection.fetch(q("forget_backfills"), after_s, limit))

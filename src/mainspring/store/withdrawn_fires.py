"""Fires of a job that nobody decides any more: those an edit takes away, and those of a pause.

Whoever calls this holds the shard's row: everything up to its watermark is decided, and nobody can decide the rest
before the edit is in force. After it, the old schedule asks for nothing any more. So that no instant vanishes without
a trace, what lies between is recorded as skipped, in one row, with the reason.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mainspring.clock import whole_millis
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store import executions
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow


def bounds(
    *,
    active_from: datetime,
    paused_at: datetime | None,
    start_at: datetime | None,
    end_at: datetime | None,
    watermark_ms: int,
    upto: datetime,
) -> tuple[int, int] | None:
    """After which and up to which instant nobody decided, for a job as it was before an edit.

    Of a paused job these are the instants since the pause began, or since its schedule was changed meanwhile.
    """
    after_ms = whole_millis(active_from)
    after_ms = max(after_ms, watermark_ms if paused_at is None else whole_millis(paused_at))
    upto_ms = whole_millis(upto)
    if start_at is not None:
        after_ms = max(after_ms, whole_millis(start_at) - 1)
    if end_at is not None:
        upto_ms = min(upto_ms, whole_millis(end_at))
    return (after_ms, upto_ms) if after_ms < upto_ms else None


def undecided(row: JobRow, *, watermark_ms: int, upto: datetime) -> tuple[int, int] | None:
    """The bounds for a job with a schedule; None if there is nothing to account for."""
    if row.schedule_key is None or row.deleted_at is not None:
        return None
    return bounds(
        active_from=row.active_from,
        paused_at=row.paused_at,
        start_at=row.start_at,
        end_at=row.end_at,
        watermark_ms=watermark_ms,
        upto=upto,
    )


async def account_for(connection: Connection, row: JobRow, *, watermark_ms: int, upto: datetime, reason: str) -> None:
    """Records what nobody decided up to the instant of an edit; what came due during a pause is `paused`."""
    within = undecided(row, watermark_ms=watermark_ms, upto=upto)
    if within is not None and row.schedule_key is not None:
        await record(
            connection,
            row.schedule_key,
            within,
            tenant=row.tenant,
            job_id=row.job_id,
            version=row.version,
            reason=reason if row.paused_at is None else "paused",
        )


async def record(
    connection: Connection, key: str, within: tuple[int, int], *, tenant: int, job_id: UUID, version: int, reason: str
) -> None:
    """All instants of a schedule between the bounds as one skipped row."""
    schedule = compile_key(key)
    count, last_ms = schedule.count_between(*within), schedule.prev_before(within[1] + 1)
    if count and last_ms is not None:
        await executions.skip_undecided(
            connection, tenant=tenant, job_id=job_id, version=version, last_ms=last_ms, count=count, reason=reason
        )

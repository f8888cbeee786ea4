"""Fires withdrawn by an edit, a pause or a deletion of their job: recorded as skipped.

The caller has locked the shard's row: fires up to its watermark are decided, and no tick can decide later ones before
the edit takes effect. After it, the old schedule no longer fires. The instants in between are recorded in one skipped
row with the reason, so that the ledger has no gap.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import structlog

from mainspring.clock import whole_millis
from mainspring.domain.schedule.budget import FIRE_STEPS, TooCostly
from mainspring.domain.schedule.recurrence import count_at_least
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store import executions
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow

log = structlog.get_logger()


def undecided_range(
    *,
    active_from: datetime,
    paused_at: datetime | None,
    start_at: datetime | None,
    end_at: datetime | None,
    watermark_ms: int,
    upto: datetime,
) -> tuple[int, int] | None:
    """The range (after, up to] of undecided instants of a job as it was before an edit.

    For a paused job: since the pause began, or since its schedule was changed during it.
    """
    after_ms = whole_millis(active_from)
    after_ms = max(after_ms, watermark_ms if paused_at is None else whole_millis(paused_at))
    upto_ms = whole_millis(upto)
    if start_at is not None:
        after_ms = max(after_ms, whole_millis(start_at) - 1)
    if end_at is not None:
        upto_ms = min(upto_ms, whole_millis(end_at))
    return (after_ms, upto_ms) if after_ms < upto_ms else None


def undecided_of(row: JobRow, *, watermark_ms: int, upto: datetime) -> tuple[int, int] | None:
    """The undecided range of a job; None without a schedule or if it is empty."""
    if row.schedule_key is None or row.deleted_at is not None:
        return None
    return undecided_range(
        active_from=row.active_from,
        paused_at=row.paused_at,
        start_at=row.start_at,
        end_at=row.end_at,
        watermark_ms=watermark_ms,
        upto=upto,
    )


async def record_withdrawn(
    connection: Connection, row: JobRow, *, watermark_ms: int, upto: datetime, reason: str
) -> None:
    """Record undecided fires up to the instant of an edit as skipped; for a paused job with the reason `paused`."""
    within = undecided_of(row, watermark_ms=watermark_ms, upto=upto)
    if within is not None and row.schedule_key is not None:
        await record_range(
            connection,
            row.schedule_key,
            within,
            tenant=row.tenant,
            job_id=row.job_id,
            version=row.version,
            reason=reason if row.paused_at is None else "paused",
        )


async def record_range(
    connection: Connection, key: str, within: tuple[int, int], *, tenant: int, job_id: UUID, version: int, reason: str
) -> None:
    """Record all instants of a schedule in a range as one skipped row.

    Of a schedule that is too costly to count, the count is a lower bound; if it cannot be searched at all, nothing is
    recorded, so that an edit of it is always possible.
    """
    schedule = compile_key(key)
    try:
        count, last_ms = count_at_least(schedule, *within, FIRE_STEPS), schedule.prev_before(within[1] + 1)
    except TooCostly:
        log.warning("fires.not_counted", job=str(job_id), reason=reason)
        return
    if count and last_ms is not None:
        await executions.skip_undecided(
            connection, tenant=tenant, job_id=job_id, version=version, last_ms=last_ms, count=count, reason=reason
        )

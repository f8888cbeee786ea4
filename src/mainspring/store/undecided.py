"""Fires of a job that nobody decides any more: those an edit takes away, and those of a pause.

Whoever calls this holds the shard's row: everything up to its watermark is decided, and nobody can decide the rest
before the edit is in force. After it, the old schedule asks for nothing any more. So that no instant vanishes without
a trace, what lies between is recorded as skipped, in one row, with the reason.
"""

from __future__ import annotations

from datetime import datetime

from mainspring.clock import whole_millis
from mainspring.domain.schedule import compile_key
from mainspring.store import executions
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow


def undecided(row: JobRow, *, watermark_ms: int, upto: datetime) -> tuple[int, int] | None:
    """The bounds (after, up to and including) of the instants that nobody decided, for a job as it was before an edit.

    Of a paused job these are the instants since the pause began, or since its schedule was changed meanwhile.
    """
    if row.schedule_key is None or row.deleted_at is not None:
        return None
    after_ms = whole_millis(row.active_from)
    after_ms = max(after_ms, watermark_ms if row.paused_at is None else whole_millis(row.paused_at))
    upto_ms = whole_millis(upto)
    if row.start_at is not None:
        after_ms = max(after_ms, whole_millis(row.start_at) - 1)
    if row.end_at is not None:
        upto_ms = min(upto_ms, whole_millis(row.end_at))
    return (after_ms, upto_ms) if after_ms < upto_ms else None


async def account_for(connection: Connection, row: JobRow, *, watermark_ms: int, upto: datetime, reason: str) -> None:
    """Records what nobody decided up to the instant of an edit; what came due during a pause is `paused`."""
    bounds = undecided(row, watermark_ms=watermark_ms, upto=upto)
    if bounds is None or row.schedule_key is None:
        return
    schedule = compile_key(row.schedule_key)
    count, last_ms = schedule.count_between(*bounds), schedule.prev_before(bounds[1] + 1)
    if count and last_ms is not None:
        await executions.skip_undecided(
            connection, tenant=row.tenant, job_id=row.job_id, version=row.version, last_ms=last_ms, count=count,
            reason=reason if row.paused_at is None else "paused",
        )  # fmt: skip

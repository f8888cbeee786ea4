"""Fires that came due while no scheduler decided, and that an edit takes away.

The editor holds the shard's row: everything up to its watermark is decided, and nobody can decide the rest before the
edit is in force. After it, the old schedule asks for nothing any more. So that no instant vanishes without a trace,
what lies between the watermark and the edit is recorded as skipped, with the edit as the reason.
"""

from __future__ import annotations

from datetime import datetime

from mainspring.clock import millis
from mainspring.domain.schedule import compile_key
from mainspring.store import executions
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow

MOST = 1_000_000


async def account_for(connection: Connection, row: JobRow, *, watermark_ms: int, upto: datetime, reason: str) -> None:
    """To be called with the shard's row held, with the job as it was before, and the instant of the edit."""
    if row.schedule_key is None or row.paused_at is not None or row.deleted_at is not None:
        return
    fires = undecided(
        row.schedule_key, after_ms=max(watermark_ms, millis(row.active_from)), upto_ms=int(upto.timestamp() * 1000),
        start_at=row.start_at, end_at=row.end_at,
    )  # fmt: skip
    if fires:
        await executions.skip_undecided(
            connection, tenant=row.tenant, job_id=row.job_id, version=row.version, last_ms=fires[-1],
            count=len(fires), reason=reason,
        )  # fmt: skip


def undecided(
    key: str, *, after_ms: int, upto_ms: int, start_at: datetime | None, end_at: datetime | None
) -> list[int]:  # fmt: skip
    """The fires of a schedule between what is decided and an edit, within a job's own start and end."""
    if start_at is not None:
        after_ms = max(after_ms, millis(start_at) - 1)
    if end_at is not None:
        upto_ms = min(upto_ms, millis(end_at))
    return compile_key(key).between(after_ms, upto_ms, MOST) if after_ms < upto_ms else []

"""Skips executions that did not start in time. A duty of the leading scheduler."""

from __future__ import annotations

from mainspring.store import deadlines, needs, overlaps
from mainspring.store.db import Database
from mainspring.telemetry import metrics

BATCH = 500
"""Executions skipped by one statement."""


async def skip_overdue(database: Database) -> int:
    """Skip executions past their `start_by`, or past the time they may wait for other jobs; return how many.

    Releases the blocked executions behind them.
    """
    skipped = 0
    while True:
        async with database.transaction() as connection:
            overdue = await deadlines.skip_overdue(connection, limit=BATCH)
        async with database.transaction() as connection:
            unmet = await needs.skip_unmet(connection, limit=BATCH)
        if chained := sorted({job_id for _, job_id in [*overdue, *unmet] if job_id is not None}):
            # After the commit, job rows first, in the lock order of settling. The sweep repeats a lost release.
            async with database.transaction() as connection:
                await overlaps.release_blocked(connection, job_ids=chained)
        metrics.FIRES_SKIPPED.labels("start_by").inc(len(overdue))
        metrics.FIRES_SKIPPED.labels("needs").inc(len(unmet))
        skipped += len(overdue) + len(unmet)
        if len(overdue) < BATCH and len(unmet) < BATCH:
            return skipped

"""Ends timed pauses. A duty of the leading scheduler."""

from __future__ import annotations

import structlog

from mainspring.intake import jobs
from mainspring.store import pauses
from mainspring.store.db import Database

log = structlog.get_logger()

BATCH = 500
"""Jobs read by one query."""


async def end_pauses(database: Database) -> int:
    """Resume every job whose pause is over by database time, as a user would; return how many."""
    ended = 0
    while True:
        async with database.connection() as connection:
            over = await pauses.pauses_over(connection, limit=BATCH)
        before = ended
        for job_id, tenant in over:
            try:
                ended += await jobs.resume(database, job_id, tenant=tenant, if_over=True)
            except Exception as error:  # a job that cannot be resumed must not block the others
                log.warning("job.resume_failed", job=str(job_id), error=repr(error))
        if ended == before:
            return ended

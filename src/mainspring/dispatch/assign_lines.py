"""Assigns lines to executions queued by an older version, which has no lines: during an upgrade both run."""

from __future__ import annotations

from mainspring.domain.placement.line import line_of
from mainspring.store import claims, lines
from mainspring.store.db import Database

BATCH = 1000


async def assign_lines(database: Database) -> None:
    """Repeat until every queued execution has a line, so that none waits for the next slow poll."""
    while True:
        async with database.transaction() as connection:
            for tenant, jobs in (await claims.jobs_without_line(connection, limit=BATCH)).items():
                wanted = [line_of(spec, job_id=job_id) for job_id, spec in jobs.items()]
                refs = await lines.intern_lines(connection, tenant=tenant, specs=wanted)
                await claims.assign_job_lines(connection, tenant=tenant, lines=dict(zip(jobs, refs, strict=True)))
        async with database.connection() as connection:
            if await claims.assign_execution_lines(connection, limit=BATCH) < BATCH:
                return

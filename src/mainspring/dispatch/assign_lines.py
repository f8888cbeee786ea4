"""Gives a line to what an older program queued, which knows no lines: during an upgrade both run side by side."""

from __future__ import annotations

from mainspring.domain.placement.line import line_of
from mainspring.store import claims, lines
from mainspring.store.db import Database

BATCH = 1000


async def adopt(database: Database) -> None:
    """Repeats until nothing is left without a line, so that nobody waits for another look."""
    while True:
        async with database.transaction() as connection:
            for tenant, jobs in (await claims.lineless_jobs(connection, limit=BATCH)).items():
                wanted = [line_of(spec, job_id=job_id) for job_id, spec in jobs.items()]
                refs = await lines.intern_lines(connection, tenant=tenant, specs=wanted)
                await claims.adopt_jobs(connection, tenant=tenant, lines=dict(zip(jobs, refs, strict=True)))
        async with database.connection() as connection:
            if await claims.adopt_executions(connection, limit=BATCH) < BATCH:
                return

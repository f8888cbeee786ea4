"""Gives a line to what an older program queued, which knows no lines: during an upgrade both run side by side."""

from __future__ import annotations

from mainspring.domain.line import line_of
from mainspring.store import claims, lines
from mainspring.store.db import Database

BATCH = 1000


async def adopt(database: Database) -> None:
    """Repeats until nothing is left without a line, so that nobody waits for another look."""
    while True:
        async with database.transaction() as connection:
            for job_id, tenant, line_id, spec in await claims.lineless_jobs(connection, limit=BATCH):
                if not line_id:
                    (ref,) = await lines.intern_lines(connection, tenant=tenant, specs=[line_of(spec, job_id=job_id)])
                    await claims.adopt_job(
                        connection, tenant=tenant, job_id=job_id, line_id=ref.line_id, limit_id=ref.limit_id
                    )
        async with database.connection() as connection:
            if await claims.adopt_executions(connection, limit=BATCH) < BATCH:
                return

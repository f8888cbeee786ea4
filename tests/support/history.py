"""Executions of the past, written as they would have ended."""

from __future__ import annotations

from uuid import UUID

from mainspring.store.db import Database

INSERT = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, started_at, finished_at, duration_ms, error, reason, fires)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), $1, gen_random_uuid()::text),
       $1, 1, 1, 5, CASE WHEN $2 = 'skipped' THEN 0 ELSE 1 END, $2, 'fire', 'short', at, at,
       CASE WHEN $2 <> 'skipped' THEN at END, db_now() - make_interval(hours => $4), 100,
       CASE WHEN $2 = 'failed' THEN 'no' END, CASE WHEN $2 = 'skipped' THEN 'overlap' END, $5
FROM (SELECT db_now() - make_interval(hours => $3)) AS due (at) RETURNING execution_id
"""


async def insert_past(
    database: Database, job_id: UUID, state: str, *, due_h: int = 1, ended_h: int = 1, fires: int = 1
) -> UUID:
    """Insert an execution that was due and that ended so many hours ago."""
    async with database.connection() as connection:
        return UUID(str(await connection.fetchval(INSERT, job_id, state, due_h, ended_h, fires)))

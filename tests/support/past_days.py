"""Days of the past with executions, attempts and output, of two tenants and of every kind of value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store.db import Connection, Database
from mainspring.testing.clock import START

FIRST_DAY = (START - timedelta(days=60)).date()
OTHER_TENANT = 2

PARTITION = """
DO $do$ BEGIN
    PERFORM create_restored_partition('{parent}', '{day}');
    EXECUTE format('ALTER TABLE {parent} ATTACH PARTITION %I'
                   || ' FOR VALUES FROM (''{day} 00:00+00'') TO (''{after} 00:00+00'')',
                   '{parent}_' || to_char(date '{day}', 'YYYYMMDD'));
END $do$
"""
# Every seventh one failed at its second attempt, every ninth was skipped while a pause held it.
HISTORY = """
INSERT INTO history (execution_id, job_id, tenant_id, version, exit_code, duration_ms, fires, priority, attempt, state,
                     trigger, queue, fire_at, due_at, queued_at, started_at, finished_at, session_id, reason, error,
                     result, params, created_by, backfill_id)
SELECT execution_id(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0'), j.job_id, n::text), j.job_id,
       j.tenant_id, 1,
       CASE WHEN n % 7 = 0 THEN 3 END, n % 1000, 1, 5, CASE WHEN n % 9 = 0 THEN 0 WHEN n % 7 = 0 THEN 2 ELSE 1 END,
       CASE WHEN n % 9 = 0 THEN 'skipped' WHEN n % 7 = 0 THEN 'failed' ELSE 'succeeded' END, 'fire', 'short', at,
       CASE WHEN n % 9 = 0 THEN 'infinity' ELSE at END, at + interval '1.000001 s', at + interval '2.5 s',
       at + interval '3.123456 s', md5(n::text)::uuid, CASE WHEN n % 9 = 0 THEN 'paused' END,
       CASE n % 7 WHEN 0 THEN E'line one\\nline "two", with a comma\\r\\n\\ttab \\\\ and ünï©ode ∑' WHEN 1 THEN '' END,
       CASE n % 5 WHEN 0 THEN
           '{{"a": [1, 2.50, 1e3, null, true], "b": "\\u00e9,\\"x\\""}}'::jsonb
           WHEN 1 THEN 'null'::jsonb END,
       CASE n % 3 WHEN 0 THEN jsonb_build_object('n', n, 'big', 12345678901234567890) END,
       CASE n % 4 WHEN 0 THEN 'ops' END,
       CASE WHEN n % 50 = 0 THEN md5('backfill')::uuid END
FROM (SELECT job_id, tenant_id, row_number() OVER (ORDER BY job_id) AS k FROM jobs) AS j
CROSS JOIN generate_series(1, $2::int) n
CROSS JOIN LATERAL (SELECT $1::timestamptz + make_interval(secs => (n * 60 + j.k)) AS at) AS t
"""
ATTEMPTS = """
INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at, ended_at,
                      due_at, queued_at, duration_ms)
SELECT execution_id, a, tenant_id, session_id, 'failed', 3, E'a,"b"\\nc', started_at, finished_at, due_at,
       queued_at, NULL
FROM history CROSS JOIN generate_series(1, 2) a WHERE state = 'failed' ON CONFLICT DO NOTHING
"""
OUTPUT = """
INSERT INTO log_chunks (execution_id, attempt, seq, tenant_id, stream, data, started_at, received_at)
SELECT execution_id, attempt, s, tenant_id, CASE s WHEN 0 THEN 'stdout' ELSE 'stderr' END,
       convert_to('line ' || s || E' of\\n', 'UTF8') || '\\x00ff80'::bytea || uuid_send(execution_id), started_at,
       CASE s WHEN 0 THEN finished_at END
FROM history CROSS JOIN generate_series(0, 2) s WHERE attempt > 0 ON CONFLICT DO NOTHING
"""
TABLES = {"history": "finished_at", "log_chunks": "started_at", "attempts": "execution_id"}


@dataclass(frozen=True)
class Past:
    """What was inserted: the jobs of the first tenant and of the other one, and the days."""

    jobs: list[UUID]
    other: UUID
    days: list[date]


async def insert_days(database: Database, *, days: int = 3, per_job: int = 60, jobs_count: int = 2) -> Past:
    """Insert days that ended long ago, with their partitions."""
    spec = JobSpec(name="past", task=NoopTask())
    made = [
        await jobs.create(database, JobSpec(name=f"past-{n}", task=NoopTask()), tenant=1, by="test")
        for n in range(jobs_count)
    ]
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO tenants (tenant_id, name) VALUES ($1, 'other') ON CONFLICT DO NOTHING", OTHER_TENANT
        )
    other = await jobs.create(database, spec, tenant=OTHER_TENANT, by="test")
    found = [FIRST_DAY + timedelta(days=n) for n in range(days)]
    async with database.connection() as connection:
        for day in found:
            for parent in ("history", "log_chunks"):
                await connection.execute(PARTITION.format(parent=parent, day=day, after=day + timedelta(days=1)))
            start = datetime(day.year, day.month, day.day, tzinfo=UTC)
            await connection.execute(HISTORY.replace("{{", "{").replace("}}", "}"), start, per_job)
        await connection.execute(ATTEMPTS)
        await connection.execute(OUTPUT)
    return Past(made, other, found)


async def contents(connection: Connection) -> dict[str, list[str]]:
    """Every row of the three tables as PostgreSQL writes it."""
    return {
        table: [r[0] for r in await connection.fetch(f"SELECT t::text FROM {table} t ORDER BY 1")] for table in TABLES
    }


async def contents_of(database: Database) -> dict[str, list[str]]:
    async with database.connection() as connection:
        return await contents(connection)

"""Fills a database with history: by default 10,000,000 executions of 10,000 jobs over 30 days, of three tenants.

Usage: python benchmarks/seed.py postgresql://... (migrated and otherwise empty). The mix is realistic: most
succeed, some fail and are retried, few time out, are lost, cancelled or skipped; a few jobs have most executions. Jobs
and workflows are created by the program itself, their history by INSERT ... SELECT. Each day is one transaction that
creates the partition, fills it, builds its indexes and attaches it; several days run in parallel, one per core. On a
server with `wal_level = minimal` this data skips the WAL.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from uuid import UUID, uuid4

from seed_history import fill_history, fill_troubles
from seed_plan import EXECUTIONS, JOBS, TEAMS, WORKERS, Plan, connect
from seed_runs import fill_runs, fill_wide_run

from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.ids import shard_of
from mainspring.intake import jobs
from mainspring.store.db import Connection, Database

ERRORS = (
    "connection to ledger-db refused", "HTTP 502 from https://rates.example.com/v1/latest", "disk quota exceeded",
    "KeyError: 'customer_id'", "deadlock detected", "the upstream table is empty",
)  # fmt: skip
CRONS = (
    "*/5 * * * *", "*/10 * * * *", "*/15 * * * *", "0 * * * *", "30 * * * *", "0 2 * * *", "30 3 * * *",
    "0 6 * * MON-FRI", "15 8 * * *", "0 9 * * MON", "45 12 * * *", "0 18 * * *", "0 0 1 * *", "20 4 * * SUN",
)  # fmt: skip


async def seed(database: Database, plan: Plan = Plan()) -> dict[str, float]:  # noqa: B008
    """Fill the database; return the seconds of each part. Reports progress on standard error."""
    took: dict[str, float] = {}
    now = datetime.now(UTC).replace(microsecond=0)

    async def part(name: str, work: Awaitable[object]) -> None:
        started = time.monotonic()
        await work
        took[name] = round(time.monotonic() - started, 1)
        print(f"  {name}: {took[name]} s", file=sys.stderr, flush=True)

    async with connect(database) as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'north'), (3, 'south')")
        await part("jobs", _jobs(database, connection, plan))
        await part("workers", _workers(connection))
        await part("history", fill_history(database, plan, now))
        await part("attempts, dead letters", fill_troubles(connection, now))
        await part("runs", fill_runs(database, connection, plan, now))
        await part("a wide run", fill_wide_run(database, connection, now))
        await part("audit", _audit(connection, plan, now))
        await part("live", _live(connection, now))
        await connection.execute("DROP TABLE seed_jobs, seed_sessions")
        await part("analyze", _analyze(connection))
    return took


async def _analyze(connection: Connection) -> None:
    """Vacuum and analyze all tables except the daily partitions, which are done already; analyze their parents."""
    plain = await connection.fetch(
        "SELECT relname FROM pg_class"
        " WHERE relkind = 'r' AND NOT relispartition AND relnamespace = current_schema()::regnamespace"
    )
    await connection.execute(f"VACUUM (ANALYZE) {', '.join(r['relname'] for r in plain)}")
    alone = "ONLY " if connection.get_server_version().major >= 18 else ""
    await connection.execute(f"ANALYZE {alone}history, {alone}log_chunks")


async def _jobs(database: Database, connection: Connection, plan: Plan) -> None:
    """Create one job of each kind through the program, and copy it under other names."""
    patterns: list[UUID] = []
    for n, cron in enumerate(CRONS):
        spec = JobSpec(
            name=f"pattern-{n}",
            task=ShellTask(argv=("true",)),
            schedule=ScheduleSpec(cron=cron),
            queue="long" if n % 7 == 6 else None,
            priority=3 + n % 5,
            retries=RetryPolicy(max=2),
        )
        patterns.append(await jobs.create(database, spec, tenant=1, by="seed"))
    ids = [uuid4() for _ in range(plan.jobs)]
    await connection.execute(
        "CREATE UNLOGGED TABLE seed_jobs"
        " (n int PRIMARY KEY, job_id uuid, tenant_id int, name text, shard int, pattern uuid)"
    )
    await connection.copy_records_to_table(
        "seed_jobs",
        records=[
            (
                n,
                ids[n],
                1 if n % 10 else 2 + n % 20 // 10,
                f"{TEAMS[n % 12]}-{n:05d}",
                shard_of(ids[n]),
                patterns[n % len(patterns)],
            )
            for n in range(plan.jobs)
        ],
    )
    await connection.execute("""
        INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, queue, priority,
                          overlap, misfire, misfire_s, misfire_most, created_at, updated_at, line_id, paused_at)
        SELECT s.job_id, s.tenant_id, s.name, 1, s.shard, 0, p.schedule_id, p.active_from, p.queue, p.priority,
               p.overlap, p.misfire, p.misfire_s, p.misfire_most, p.created_at, p.updated_at, p.line_id,
               CASE WHEN s.n % 50 = 7 THEN p.created_at END
        FROM seed_jobs s JOIN jobs p ON p.job_id = s.pattern
    """)
    await connection.execute("""
        INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by)
        SELECT s.job_id, 1, s.tenant_id, jsonb_set(v.spec, '{name}', to_jsonb(s.name)), 'seed'
        FROM seed_jobs s JOIN job_versions v ON v.job_id = s.pattern
    """)
    await connection.execute("ANALYZE seed_jobs")


async def _workers(connection: Connection) -> None:
    await connection.execute(
        """
        WITH made AS (
            INSERT INTO workers (worker_id, tenant_id, name)
            SELECT gen_random_uuid(), 1, 'worker-' || lpad(n::text, 2, '0') FROM generate_series(1, $1::int) n
            RETURNING worker_id, tenant_id, name
        )
        INSERT INTO sessions (session_id, tenant_id, worker_id, state, host, version, slots, queues, kinds, labels,
                              started_at, lease_expires_at)
        SELECT gen_random_uuid(), tenant_id, worker_id, 'active', 'host-' || right(name, 2), '0.1.0', 16,
               '{short,long}', '{shell,http,python}', '{"zone": "a"}', db_now() - interval '3 days',
               db_now() + interval '30 days'
        FROM made
        """,
        WORKERS,
    )
    await connection.execute("""
        CREATE UNLOGGED TABLE seed_sessions AS
        SELECT row_number() OVER (ORDER BY session_id) - 1 AS n, session_id FROM sessions
    """)


async def _audit(connection: Connection, plan: Plan, now: datetime) -> None:
    """What people did meanwhile: for each thousand executions ten entries."""
    await connection.execute(
        """
        INSERT INTO audit (tenant_id, at, actor, action, subject, name, reason)
        SELECT j.tenant_id, $2::timestamptz - ($1 - i) * ($3::float8 / $1) * interval '1 second',
               'person-' || i % 30, (ARRAY['job.pause', 'job.resume', 'dead_letter.dismiss'])[1 + i % 3],
               j.job_id::text, j.name, CASE WHEN i % 3 < 2 THEN 'maintenance of the ledger' END
        FROM generate_series(1, $1::int) AS g (i)
        JOIN seed_jobs j ON j.n = i % (SELECT count(*) FROM seed_jobs)
        ORDER BY i
        """,
        max(1, plan.executions // 100),
        now,
        plan.days * 86400.0,
    )


async def _live(connection: Connection, now: datetime) -> None:
    """What waits, what is queued and what runs at this moment."""
    await connection.execute(
        """
        INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank,
                                fire_at, due_at, queued_at, started_at, session_id, attempt, line_id)
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM t.at) * 1000)::bigint), 12, '0'), j.job_id,
                            'live' || i), j.job_id, j.tenant_id, 1, j.shard, j.priority, t.state, 'fire', j.queue,
               claim_rank(floor(extract(epoch FROM t.at) * 1000)::bigint, j.priority), t.at, t.at,
               CASE WHEN t.state <> 'waiting' THEN t.at END, CASE WHEN t.state = 'running' THEN t.at END,
               CASE WHEN t.state = 'running' THEN s.session_id END, CASE WHEN t.state = 'running' THEN 1 ELSE 0 END,
               j.line_id
        FROM generate_series(0, 7999) AS g (i)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN i < 400 THEN 'running' WHEN i < 3000 THEN 'queued' ELSE 'waiting' END AS state,
                   $1::timestamptz + (CASE WHEN i < 3000 THEN -1 ELSE 1 END) * (i % 3000) * interval '1 s' AS at
        ) AS t
        JOIN seed_jobs sj ON sj.n = i % (SELECT count(*) FROM seed_jobs) JOIN jobs j USING (job_id)
        JOIN seed_sessions s ON s.n = i % 40
        """,
        now,
    )


async def main(url: str) -> None:
    started = time.monotonic()
    async with Database(url, size=4) as database:
        await seed(database)
    print(f"{EXECUTIONS:,} executions of {JOBS:,} jobs in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: seed.py postgresql://… (a migrated, empty database)")
    asyncio.run(main(sys.argv[1]))

"""Fills a database with history: by default 10,000,000 executions of 10,000 jobs over 30 days, of three tenants.

Usage: python benchmarks/seed.py postgresql://... (migrated and otherwise empty). The mix is realistic: most
succeed, some fail and are retried, few time out, are lost, cancelled or skipped; a few jobs have most executions. Jobs
and workflows are created by the program itself, their history by INSERT ... SELECT. Each day is one transaction that
creates the partition, fills it, builds its indexes and attaches it; several days run in parallel, one per core. On a
server with `wal_level = minimal` this data skips the WAL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg

from mainspring.domain.fingerprint import fingerprint
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.ids import shard_of
from mainspring.intake import jobs, workflows
from mainspring.store.db import Connection, Database, connection_settings, prepare_connection

EXECUTIONS = int(os.environ.get("SEED_EXECUTIONS", "10000000"))
JOBS = int(os.environ.get("SEED_JOBS", "10000"))
DAYS = int(os.environ.get("SEED_DAYS", "30"))
LANES = int(os.environ.get("SEED_LANES", str(min(4, os.cpu_count() or 1))))
WORKFLOWS = 50
RUNS_PER_THOUSAND = 1
WIDE_STEPS = 10_000
WORKERS = 40
KEYS = {"history": "finished_at", "log_chunks": "started_at"}
TEAMS = ("billing", "crm", "etl", "growth", "infra", "ledger", "mail", "ml", "ops", "search", "stock", "web")
ERRORS = (
    "connection to ledger-db refused", "HTTP 502 from https://rates.example.com/v1/latest", "disk quota exceeded",
    "KeyError: 'customer_id'", "deadlock detected", "the upstream table is empty",
)  # fmt: skip
CRONS = (
    "*/5 * * * *", "*/10 * * * *", "*/15 * * * *", "0 * * * *", "30 * * * *", "0 2 * * *", "30 3 * * *",
    "0 6 * * MON-FRI", "15 8 * * *", "0 9 * * MON", "45 12 * * *", "0 18 * * *", "0 0 1 * *", "20 4 * * SUN",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    executions: int = EXECUTIONS
    jobs: int = JOBS
    days: int = DAYS


async def seed(database: Database, plan: Plan = Plan()) -> dict[str, float]:  # noqa: B008
    """Fill the database; return the seconds of each part. Reports progress on standard error."""
    took: dict[str, float] = {}
    now = datetime.now(UTC).replace(microsecond=0)

    async def part(name: str, work: Awaitable[object]) -> None:
        started = time.monotonic()
        await work
        took[name] = round(time.monotonic() - started, 1)
        print(f"  {name}: {took[name]} s", file=sys.stderr, flush=True)

    async with _connect(database) as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'north'), (3, 'south')")
        await part("jobs", _jobs(database, connection, plan))
        await part("workers", _workers(connection))
        await part("history", _history(database, plan, now))
        await part("attempts, dead letters", _troubles(connection, now))
        await part("runs", _runs(database, connection, plan, now))
        await part("a wide run", _wide_run(database, connection, now))
        await part("audit", _audit(connection, plan, now))
        await part("live", _live(connection, now))
        await connection.execute("DROP TABLE seed_jobs, seed_sessions")
        await part("analyze", _analyze(connection))
    return took


@contextlib.asynccontextmanager
async def _connect(database: Database) -> AsyncIterator[Connection]:
    """Open a separate connection: those of the pool time out after a minute."""
    connection = await asyncpg.connect(database.dsn, server_settings=connection_settings())
    try:
        await prepare_connection(connection)
        await connection.execute("SET synchronous_commit = off")
        await connection.execute("SET work_mem = '256MB'; SET maintenance_work_mem = '512MB'")
        await connection.execute("SET max_parallel_maintenance_workers = 0")  # the parallel days use the cores
        yield connection
    finally:
        await connection.close()


async def _history(database: Database, plan: Plan, now: datetime) -> None:
    """Fill the days, oldest first, in parallel lanes."""
    days, begun, done = iter(range(plan.days - 1, -1, -1)), time.monotonic(), 0

    async def lane() -> None:
        nonlocal done
        async with _connect(database) as connection:
            for back in days:
                first = plan.executions * (plan.days - 1 - back) // plan.days
                many = plan.executions * (plan.days - back) // plan.days - first
                tables = await _day(connection, now, back, first, many)
                # While its pages are cached, and before autovacuum starts.
                await connection.execute(f"VACUUM (FREEZE, ANALYZE) {', '.join(tables)}")
                done += many
                told = f"{done:,} of {plan.executions:,} executions after {time.monotonic() - begun:.0f} s"
                print(f"    {told}", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(lane())


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


async def _day(connection: Connection, now: datetime, back: int, first: int, many: int) -> tuple[str, str]:
    """Insert one day's executions and the output of one in ten in a transaction; return the names of the partitions."""
    start = (now - timedelta(days=back)).replace(hour=0, minute=0, second=0)
    length_s = (now - start).total_seconds() if back == 0 else 86400.0
    for parent in KEYS:  # drop empty partitions that the program created ahead; here, because the lock must be short
        await connection.execute(f"DROP TABLE IF EXISTS {parent}_{start:%Y%m%d}")
    async with connection.transaction():
        history, chunks = (
            await _partition(connection, "history", start),
            await _partition(connection, "log_chunks", start),
        )
        await _executions(connection, history, start, length_s, first, many)
        await _output(connection, history, chunks, start)
        await _index(connection, "history", history)
        await _index(connection, "log_chunks", chunks)
        await _attach(connection, "history", history, start)
        await _attach(connection, "log_chunks", chunks, start)
    return history, chunks


async def _executions(
    connection: Connection, history: str, start: datetime, length_s: float, first: int, many: int
) -> None:
    columns = (
        "execution_id, job_id, tenant_id, version, exit_code, duration_ms, priority, attempt, state, trigger, queue,"
        " fire_at, due_at, queued_at, started_at, finished_at, session_id, reason, error"
    )
    await connection.execute(
        f"""
        WITH drawn AS MATERIALIZED (
            SELECT n, $2::timestamptz + ((n - $1) * ($3::float8 / $4)) * interval '1 second' AS fire_at,
                   (hashint8(n) & 2147483647) / 2147483648.0 AS u,
                   (hashint8(n * 31 + 7) & 2147483647) % 100000 AS luck,
                   20 + (hashint8(n * 17 + 3) & 2147483647) % 9000 AS late_ms,
                   100 + (hashint8(n * 13 + 5) & 2147483647) % 20000 AS took_ms
            FROM generate_series($1::bigint, $1::bigint + $4::bigint - 1) n
        ), told AS (
            SELECT *, CASE WHEN luck < 96400 THEN 'succeeded' WHEN luck < 98700 THEN 'failed'
                           WHEN luck < 98950 THEN 'timed_out' WHEN luck < 98970 THEN 'lost'
                           WHEN luck < 99200 THEN 'cancelled' ELSE 'skipped' END AS state
            FROM drawn
        )
        INSERT INTO {history} ({columns})
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM t.fire_at) * 1000)::bigint), 12, '0'), j.job_id,
                            t.n::text),
               j.job_id, j.tenant_id, 1, CASE t.state WHEN 'succeeded' THEN 0 WHEN 'failed' THEN 1 END,
               CASE WHEN t.state NOT IN ('skipped', 'cancelled') THEN t.took_ms END, 5,
               CASE WHEN t.state IN ('skipped', 'cancelled') THEN 0 WHEN t.state = 'failed' THEN 3 ELSE 1 END,
               t.state, CASE WHEN t.luck % 37 = 0 THEN 'manual' ELSE 'fire' END,
               CASE WHEN j.n % 7 = 6 THEN 'long' ELSE 'short' END, t.fire_at, t.fire_at,
               t.fire_at + interval '2 ms', CASE WHEN t.state NOT IN ('skipped', 'cancelled')
                   THEN least(t.fire_at + t.late_ms * interval '1 ms', d.last_at) END,
               least(t.fire_at + (t.late_ms + t.took_ms) * interval '1 ms', d.last_at),
               CASE WHEN t.state NOT IN ('skipped', 'cancelled') THEN s.session_id END,
               CASE t.state WHEN 'skipped' THEN 'overlap' WHEN 'cancelled' THEN 'a person asked' END,
               CASE t.state WHEN 'failed' THEN ($5::text[])[1 + t.luck % {len(ERRORS)}]
                            WHEN 'timed_out' THEN 'took longer than 1 h' END
        FROM told t JOIN seed_jobs j ON j.n = floor(t.u * t.u * (SELECT count(*) FROM seed_jobs))::int
        JOIN seed_sessions s ON s.n = t.n % {WORKERS}
        CROSS JOIN (SELECT $2::timestamptz + interval '1 day' - interval '1 ms') AS d (last_at)
        """,
        first,
        start,
        length_s,
        many,
        list(ERRORS),
    )


async def _output(connection: Connection, history: str, chunks: str, start: datetime) -> None:
    await connection.execute(
        f"""
        INSERT INTO {chunks} (execution_id, attempt, seq, tenant_id, stream, data, started_at)
        SELECT execution_id, attempt, 0, tenant_id, CASE WHEN state = 'failed' THEN 'stderr' ELSE 'stdout' END,
               convert_to(repeat(format(E'%s part of %s done\n', finished_at, job_id), 5), 'UTF8'),
               greatest(started_at, $1)
        FROM {history} WHERE started_at IS NOT NULL AND started_at < $1 + interval '1 day'
          AND get_byte(uuid_send(execution_id), 15) < 26
        """,
        start,
    )


async def _partition(connection: Connection, parent: str, day: datetime) -> str:
    """A table for one day, not attached yet."""
    name, key = f"{parent}_{day:%Y%m%d}", KEYS[parent]
    await connection.execute(f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    # With this nothing is read again when it is attached.
    await connection.execute(
        f"ALTER TABLE {name} ADD CONSTRAINT of_the_day CHECK ({key} IS NOT NULL AND {key} >= '{day:%Y-%m-%d} 00:00+00'"
        f" AND {key} < '{day + timedelta(days=1):%Y-%m-%d} 00:00+00')"
    )
    return name


async def _index(connection: Connection, parent: str, name: str) -> None:
    """The parent's indexes, made before the table is attached: lanes that attach wait for one another."""
    rows = await connection.fetch(
        "SELECT pg_get_indexdef(indexrelid) AS made, indisprimary"
        " FROM pg_index WHERE indrelid = $1::text::regclass ORDER BY indexrelid",
        parent,
    )
    for row in rows:
        what = row["made"].partition(" USING ")[2]
        if row["indisprimary"]:
            await connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY {what.removeprefix('btree ')}")
        else:
            await connection.execute(f"CREATE INDEX ON {name} USING {what}")


async def _attach(connection: Connection, parent: str, name: str, day: datetime) -> None:
    bounds = f"FROM ('{day:%Y-%m-%d} 00:00+00') TO ('{day + timedelta(days=1):%Y-%m-%d} 00:00+00')"
    await connection.execute(f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES {bounds}")
    await connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT of_the_day")


async def _troubles(connection: Connection, now: datetime) -> None:
    """The attempts of what failed, and a dead letter for each; a tenth of those of today still wait for somebody."""
    await connection.execute("""
        INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at,
                              ended_at)
        SELECT execution_id, n, tenant_id, session_id, 'failed', 1, error, started_at, finished_at
        FROM history CROSS JOIN generate_series(1, 3) n WHERE state = 'failed'
        UNION ALL
        SELECT execution_id, 1, tenant_id, session_id, state, NULL, error, started_at, finished_at
        FROM history WHERE state IN ('timed_out', 'lost')
    """)
    prints = [fingerprint(error, state="failed", exit_code=1) for error in ERRORS]
    await connection.execute(
        """
        INSERT INTO dead_letters (dead_letter_id, tenant_id, job_id, version, exit_code, state, ended_as, trigger,
                                  queue, fingerprint, fire_at, created_at, error, attempts, closed_at,
                                  closed_by, close_reason)
        SELECT execution_id, tenant_id, job_id, version, exit_code, CASE WHEN is_open THEN 'open' ELSE 'dismissed' END,
               state, trigger, queue, coalesce(($1::text[])[array_position($2::text[], error)], 'none'), fire_at,
               finished_at, error, '[]', CASE WHEN NOT is_open THEN finished_at + interval '1 hour' END,
               CASE WHEN NOT is_open THEN 'seed' END, CASE WHEN NOT is_open THEN 'known' END
        FROM (
            SELECT *, finished_at > $3::timestamptz - interval '1 day'
                      AND get_byte(uuid_send(execution_id), 14) < 26 AS is_open
            FROM history WHERE state IN ('failed', 'timed_out', 'lost')
        ) AS ended
        """,
        prints,
        list(ERRORS),
        now,
    )


async def _runs(database: Database, connection: Connection, plan: Plan, now: datetime) -> None:
    task = ShellTask(argv=("true",))
    steps = {
        "extract": Step(task=task),
        "clean": Step(task=task, needs=("extract",)),
        "load": Step(task=task, needs=("clean",)),
        "check": Step(task=task, needs=("clean",)),
        "publish": Step(task=task, needs=("load", "check")),
    }
    for n in range(WORKFLOWS):
        spec = WorkflowSpec(name=f"flow-{TEAMS[n % 12]}-{n:02d}", steps=steps)
        await workflows.apply(database, spec, tenant=1, by="seed")
    runs = plan.executions * RUNS_PER_THOUSAND // 1000
    await connection.execute(
        """
        CREATE TEMP TABLE seed_runs AS
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), w.job_id, n::text)
                   AS run_id, w.job_id, w.steps_id, at, CASE WHEN n % 40 = 0 THEN 'failed' ELSE 'succeeded' END AS state
        FROM generate_series(0, $1::int - 1) n
        CROSS JOIN LATERAL (SELECT $2::timestamptz - ((n + 1) * $3::float8 / $1) * interval '1 second') AS t (at)
        JOIN (SELECT row_number() OVER (ORDER BY job_id) - 1 AS k, job_id, steps_id FROM workflow_versions) w
            ON w.k = n % $4::int
        """,
        runs,
        now,
        (plan.days - 1) * 86400.0,
        WORKFLOWS,
    )
    await connection.execute("""
        INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, state, open_steps, fire_at, started_at,
                          finished_at)
        SELECT run_id, 1, job_id, 1, 1, state, 0, at, at, at + interval '40 s' FROM seed_runs
    """)
    await connection.execute("""
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms, session_id)
        SELECT run_id, job_id, 1, 1, 5, 1, state, 'manual', 'short', at, at, at, at, at + interval '40 s', 40000, run_id
        FROM seed_runs
    """)
    await connection.execute("""
        WITH made AS (
            INSERT INTO run_steps (run_id, tenant_id, step, execution_id, state, ok, released_at, finished_at)
            SELECT run_id, 1, step,
                   execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint + step * 8000), 12, '0'),
                                steps_id, run_id::text || step),
                   CASE WHEN state = 'succeeded' OR step < 4 THEN 'succeeded' ELSE 'failed' END, 0,
                   at + step * interval '8 s', at + (step + 1) * interval '8 s'
            FROM seed_runs CROSS JOIN generate_series(0, 4) step
            RETURNING *
        )
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms)
        SELECT m.execution_id, r.steps_id, 1, 1, 5, 1, m.state, 'step', 'short', m.released_at, m.released_at,
               m.released_at, m.released_at, m.finished_at, 8000
        FROM made m JOIN seed_runs r USING (run_id)
    """)


async def _wide_run(database: Database, connection: Connection, now: datetime) -> None:
    """A workflow of 10,000 steps in a hundred layers, with a run that is halfway through."""
    task, steps = ShellTask(argv=("true",)), dict[str, Step]()
    for n in range(WIDE_STEPS):
        above = (n - 100, (n // 100 - 1) * 100 + (n * 7 + 1) % 100) if n >= 100 else ()
        steps[f"s{n // 100:02d}_{n % 100:02d}"] = Step(
            task=task, needs=tuple(dict.fromkeys(f"s{m // 100:02d}_{m % 100:02d}" for m in above))
        )
    await workflows.apply(database, WorkflowSpec(name="flow-wide", steps=steps), tenant=1, by="seed")
    begun = now - timedelta(minutes=20)
    await connection.execute(
        """
        CREATE TEMP TABLE seed_wide AS
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM $1::timestamptz) * 1000)::bigint), 12, '0'), w.job_id,
                            'wide') AS run_id, w.job_id, w.steps_id, $1::timestamptz AS at
        FROM workflow_versions w JOIN jobs j USING (job_id) WHERE j.name = 'flow-wide'
        """,
        begun,
    )
    await connection.execute(
        """
        INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, state, open_steps, fire_at, started_at)
        SELECT run_id, 1, job_id, 1, 1, 'running', $1::int / 2, at, at FROM seed_wide
        """,
        WIDE_STEPS,
    )
    await connection.execute(
        """
        WITH made AS (
            INSERT INTO run_steps (run_id, tenant_id, step, execution_id, state, released_at, finished_at)
            SELECT run_id, 1, step,
                   execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint + step * 100), 12, '0'),
                                steps_id, run_id::text || step),
                   CASE WHEN step < $1::int / 2 THEN 'succeeded' ELSE 'blocked' END,
                   CASE WHEN step < $1::int / 2 THEN at + step * interval '100 ms' END,
                   CASE WHEN step < $1::int / 2 THEN at + (step + 5) * interval '100 ms' END
            FROM seed_wide CROSS JOIN generate_series(0, $1::int - 1) step
            RETURNING *
        )
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms)
        SELECT m.execution_id, r.steps_id, 1, 1, 5, 1, m.state, 'step', 'short', m.released_at, m.released_at,
               m.released_at, m.released_at, m.finished_at, 500
        FROM made m JOIN seed_wide r USING (run_id) WHERE m.finished_at IS NOT NULL
        """,
        WIDE_STEPS,
    )


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

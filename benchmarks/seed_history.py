"""Fills the history: executions by day with the output of some, their attempts and dead letters."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import datetime, timedelta

from seed_plan import WORKERS, Plan, connect

from mainspring.domain.fingerprint import fingerprint
from mainspring.store.db import Connection, Database

LANES = int(os.environ.get("SEED_LANES", str(min(4, os.cpu_count() or 1))))
KEYS = {"history": "finished_at", "log_chunks": "started_at"}
ERRORS = (
    "connection to ledger-db refused", "HTTP 502 from https://rates.example.com/v1/latest", "disk quota exceeded",
    "KeyError: 'customer_id'", "deadlock detected", "the upstream table is empty",
)  # fmt: skip


async def fill_history(database: Database, plan: Plan, now: datetime) -> None:
    """Fill the days, oldest first, in parallel lanes."""
    days, begun, done = iter(range(plan.days - 1, -1, -1)), time.monotonic(), 0

    async def lane() -> None:
        nonlocal done
        async with connect(database) as connection:
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


async def fill_troubles(connection: Connection, now: datetime) -> None:
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

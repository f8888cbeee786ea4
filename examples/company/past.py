"""Write a past for the jobs: two weeks of executions, straight into the tables.

Only the example does this, so that its charts and streaks are there from the start. Everything else of the company goes
through manifests, functions and the API. The same seed gives the same durations and outcomes.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.store.db import Database

DAYS = 14
MOST_EACH = 400
LONG_S = {"search-reindex": 1500.0, "data-warehouse-load": 640.0, "ops-backup": 2400.0, "search-ranking": 2100.0}
LEDGER_DOWN = "exit code 2: psql: error: connection to server at ledger-db, port 5432 failed: Connection refused"
STREAKS = {
    "finance-ledger-export": (5, LEDGER_DOWN),
    "data-quality": (3, "KeyError: 'customer_id'"),
    "data-partner-export": (2, "exit code 255: sftp: connect to host files.example.com port 22: Connection timed out"),
}
"""Jobs whose latest executions failed: how many in a row, and with which error."""
UNRELIABLE = {"shop-stock-sync": 0.12, "mail-abandoned-carts": 0.03, "search-click-log": 0.02, "shop-images": 0.05}
SKIPPED = {"shop-images": 0.2}
INSERT = """
INSERT INTO history (execution_id, job_id, tenant_id, version, exit_code, duration_ms, priority, attempt, state,
                     trigger, queue, fire_at, due_at, queued_at, started_at, finished_at, session_id, reason, error)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM fire_at) * 1000)::bigint), 12, '0'), $1, 'past ' || fire_at),
       $1, j.tenant_id, CASE WHEN in_streak THEN j.version ELSE 1 END,
       CASE state WHEN 'succeeded' THEN 0 WHEN 'failed' THEN 1 END, CASE WHEN state <> 'skipped' THEN took_ms END,
       j.priority, CASE WHEN state = 'skipped' THEN 0 ELSE 1 END, state,
       'fire', j.queue, fire_at, fire_at, fire_at,
       CASE WHEN state <> 'skipped' THEN fire_at + late_ms * interval '1 ms' END,
       fire_at + (late_ms + took_ms) * interval '1 ms', CASE WHEN state <> 'skipped' THEN $2::uuid END,
       CASE state WHEN 'skipped' THEN 'overlap' END, error
FROM jobs j, unnest($3::timestamptz[], $4::text[], $5::int[], $6::int[], $7::text[], $8::bool[])
    AS past (fire_at, state, late_ms, took_ms, error, in_streak)
WHERE j.job_id = $1
"""
ACTIVE_FROM = "UPDATE jobs SET active_from = $2, created_at = $2 WHERE job_id = $1"
CHANGED = """
UPDATE job_versions SET created_at = CASE WHEN version = 1 THEN $2::timestamptz ELSE $3 END WHERE job_id = $1
"""
DEAD_LETTERS = """
WITH latest AS (
    SELECT DISTINCT ON (job_id) * FROM dead_letters WHERE run_id IS NULL ORDER BY job_id, created_at DESC
)
INSERT INTO dead_letters (dead_letter_id, tenant_id, job_id, version, exit_code, ended_as, trigger, queue, fingerprint,
                          fire_at, created_at, reason, error, attempts)
SELECT h.execution_id, h.tenant_id, h.job_id, h.version, l.exit_code, l.ended_as, h.trigger, h.queue, l.fingerprint,
       h.fire_at, h.finished_at, l.reason, l.error, '[]'
FROM history h JOIN latest l USING (job_id)
WHERE h.state = 'failed' AND h.trigger = 'fire' AND h.fire_at > (
    SELECT max(s.fire_at) FROM history s WHERE s.job_id = h.job_id AND s.state = 'succeeded')
ON CONFLICT DO NOTHING
"""
"""The failures of the past are those of now: the same error, in the same group."""


async def write_past(client: AsyncClient, database: Database) -> int:
    """Write the past fires of every job that has a schedule; return how many."""
    worker = (await client.workers()).items[0]
    count, cursor = 0, None
    async with database.connection() as connection:
        for day in (datetime.now(UTC).date() - timedelta(days=n) for n in range(1, DAYS + 2)):
            bounds = f"FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
            name = f"history_{day:%Y%m%d}"
            await connection.execute(f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF history FOR VALUES {bounds}")
        while True:
            page = await client.jobs(cursor=cursor, limit=500)
            for job in page.items:
                if job.spec.schedule is not None and job.spec.kind != "workflow" and job.spec.queue_name != "gpu":
                    rows = _rows(job, await _fires(client, job))
                    await connection.execute(INSERT, job.job_id, worker.session_id, *map(list, zip(*rows, strict=True)))
                    # Deadlines are judged from here on. Fires are not: the shard has decided them up to now.
                    begun = rows[0][0] - timedelta(seconds=1)
                    await connection.execute(ACTIVE_FROM, job.job_id, begun)
                    broken = next((row[0] for row in rows if row[5]), begun)
                    await connection.execute(CHANGED, job.job_id, begun, broken - timedelta(minutes=12))
                    count += len(rows)
            if (cursor := page.next_cursor) is None:
                return count


async def write_dead_letters(database: Database) -> None:
    """Give the failures that the jobs' latest executions repeat their dead letters."""
    async with database.connection() as connection:
        await connection.execute(DEAD_LETTERS)


async def _fires(client: AsyncClient, job: wire.Job) -> list[datetime]:
    """The latest fires before the job existed."""
    now = job.created_at
    assert job.spec.schedule is not None
    ahead = (await client.preview(wire.PreviewRequest(schedule=job.spec.schedule, count=3, job=job.name))).fires
    gap = ahead[2] - ahead[1]
    after = now - min(timedelta(days=DAYS), MOST_EACH * gap)
    wanted = wire.PreviewRequest(schedule=job.spec.schedule, after=after, count=500, job=job.name)
    return [at for at in (await client.preview(wanted)).fires if at < now] or [now - timedelta(days=7)]


def _rows(job: wire.Job, fires: list[datetime]) -> list[tuple[datetime, str, int, int, str | None, bool]]:
    chance = random.Random(job.name)
    usual_s = LONG_S.get(job.name, chance.choice((0.4, 1.2, 3.0, 8.0, 20.0, 45.0)))
    streak, streak_error = STREAKS.get(job.name, (0, ""))
    rows: list[tuple[datetime, str, int, int, str | None, bool]] = []
    for n, at in enumerate(fires):
        busy = 1.6 if at.astimezone(UTC).hour in (1, 2, 9) else 1.0
        took_ms = round(1000 * usual_s * busy * chance.lognormvariate(0, 0.25))
        late_ms = round(chance.expovariate(1 / 25) * busy) + 3
        state, error = "succeeded", None
        in_streak = n >= len(fires) - streak
        if in_streak:
            state, error = "failed", streak_error
        elif chance.random() < UNRELIABLE.get(job.name, 0.004):
            state, error = "failed", "HTTP 503 from the warehouse: Service Unavailable"
        elif chance.random() < SKIPPED.get(job.name, 0.0):
            state, took_ms = "skipped", 0
        rows.append((at, state, late_ms, took_ms, error, in_streak))
    return rows

"""Dropping 30 days of history takes seconds, and blocks neither those who settle nor those who read.

RETENTION_ROWS=10000000 is the long form.
"""

from __future__ import annotations

import asyncio
import os
import time
from uuid import UUID, uuid4

import pytest

from mainspring.store import retention
from mainspring.store.db import Connection, Database

pytestmark = pytest.mark.anyio

ROWS = int(os.environ.get("RETENTION_ROWS", "150000"))
DAYS = 30
MOST_S = 10.0
MOST_BLOCKED_S = 1.0
PAST_DAYS = """
DO $$
DECLARE day date;
BEGIN
    FOR day IN SELECT (db_now() AT TIME ZONE 'UTC')::date - n FROM generate_series(101, 130) n LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF history FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, '"history_"YYYYMMDD'), day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
    END LOOP;
END $$"""
INSERT = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, started_at, finished_at, duration_ms)"""
FILL = f"""{INSERT}
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), $1, n::text), $1, 1, 1, 5, 1,
       CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, 'fire', 'short', at, at, at, at, 5
FROM (SELECT n, date_trunc('day', db_now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(days => $2)
                + n * (interval '86390 s' / $3::int) AS at FROM generate_series(1, $3::int) AS n) AS d"""
SETTLE = f"""{INSERT}
SELECT gen_random_uuid(), $1, 1, 1, 5, 1, 'succeeded', 'fire', 'short', db_now(), db_now(), db_now(), db_now(), 5
FROM generate_series(1, 100)"""
LATEST = "SELECT execution_id FROM history WHERE job_id = $1 ORDER BY execution_id DESC LIMIT 20"
EXPIRED = "SELECT count(*) FROM history WHERE finished_at < db_now() - interval '90 days'"


class Repeated:
    """One statement, over and over on a connection of its own, and how long each took."""

    def __init__(self, connection: Connection, sql: str, job: UUID) -> None:
        self.took: list[float] = []
        self.first = asyncio.Event()
        self._over = False
        self._task = asyncio.create_task(self._run(connection, sql, job))

    async def _run(self, connection: Connection, sql: str, job: UUID) -> None:
        while not self._over:
            begun = time.perf_counter()
            await connection.fetch(sql, job)
            self.took.append(time.perf_counter() - begun)
            self.first.set()

    async def longest(self) -> float:
        self._over = True
        await self._task
        return max(self.took)


@pytest.mark.requirement(149)
async def test_thirty_days_are_dropped_in_seconds_while_others_settle_and_read(fresh: Database) -> None:
    job = uuid4()
    async with fresh.connection() as connection, fresh.connection() as one, fresh.connection() as other:
        await retention.make_partitions(connection, days=2)
        await connection.execute(PAST_DAYS)
        for day in range(101, 101 + DAYS):
            await connection.execute(FILL, job, day, ROWS // DAYS, timeout=600)
        assert await connection.fetchval(EXPIRED) == ROWS // DAYS * DAYS
        settling, reading = Repeated(one, SETTLE, job), Repeated(other, LATEST, job)
        await asyncio.gather(settling.first.wait(), reading.first.wait())
        begun, dropped = time.perf_counter(), 0
        while found := await retention.drop_partitions(connection, "history", after_s=90 * 86_400.0):
            dropped += len(found)
        took = time.perf_counter() - begun
        settled, read = await settling.longest(), await reading.longest()
        left = await connection.fetchval(EXPIRED)
    print(f"{ROWS:,} executions dropped in {took:.2f} s; settling waited {settled:.3f} s, reading {read:.3f} s at most")
    assert (dropped, left) == (DAYS, 0)
    assert took < MOST_S and max(settled, read) < MOST_BLOCKED_S
    assert len(settling.took) > 1 and len(reading.took) > 1

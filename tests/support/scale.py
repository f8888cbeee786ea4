"""A large history, and what the statements of pages read of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from mainspring.store.audit import ORIGIN
from mainspring.store.db import Connection, Database
from tests.support.statements import listen

BIG = ("history", "executions", "dead_letters", "attempts")
PAST_DAYS = """
DO $$
DECLARE day date;
BEGIN
    FOR day IN SELECT generate_series(db_now() - interval '5 days', db_now(), '1 day')::date LOOP
        IF to_regclass(format('history_%s', to_char(day, 'YYYYMMDD'))) IS NULL THEN
            EXECUTE format('CREATE TABLE history_%s PARTITION OF history FOR VALUES FROM (%L) TO (%L)',
                           to_char(day, 'YYYYMMDD'), day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
        END IF;
    END LOOP;
END $$
"""
FILL = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, queued_at, started_at, finished_at, duration_ms, error)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), job, n::text), job, 1, 1, 5, 1,
       CASE WHEN n % $2 = 0 THEN (ARRAY['failed', 'timed_out', 'lost'])[1 + n / $2 % 3] ELSE 'succeeded' END,
       CASE WHEN n % 2 = 0 THEN 'fire' ELSE 'manual' END, 'short', at, at, at, at, least(at + interval '1 s', now),
       1000, CASE WHEN n % $2 = 0 THEN 'no such row' END
FROM generate_series(1, $3::int) n
CROSS JOIN LATERAL (SELECT ($1::uuid[])[1 + n % cardinality($1::uuid[])]) AS j (job)
CROSS JOIN (SELECT db_now() AS now, date_trunc('day', db_now()) AS today) AS clock
-- As many rows on each of four days, also if today has just begun: PostgreSQL reads small tables sequentially.
CROSS JOIN LATERAL (SELECT n / 50 % 4 AS back, n::float8 / $3 AS part) AS drawn
CROSS JOIN LATERAL (SELECT CASE back WHEN 0 THEN today + (now - today) * part
                           ELSE today - back * interval '1 day' + part * interval '86390 s' END) AS t (at)
"""
BURY = """
INSERT INTO dead_letters (dead_letter_id, tenant_id, job_id, version, ended_as, trigger, queue, fingerprint, fire_at,
                          created_at, error, attempts)
SELECT gen_random_uuid(), 1, job_id, 1, 'failed', 'manual', 'short', 'mistake-' || n % 7, db_now(), db_now(), 'no', '[]'
FROM generate_series(1, $2::int) n
CROSS JOIN LATERAL (SELECT ($1::uuid[])[1 + n % cardinality($1::uuid[])]) AS j (job_id)
"""
LIVE = """
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank, fire_at,
                        due_at, queued_at, line_id)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), job, 'live-' || n), job, 1, 1,
       n % 64, 5, $3, 'manual', 'short', n, at, at, CASE WHEN $3 = 'queued' THEN at END, j.line_id
FROM generate_series(1, $2::int) n
CROSS JOIN LATERAL (SELECT ($1::uuid[])[1 + n % cardinality($1::uuid[])]) AS w (job)
JOIN jobs j ON j.job_id = w.job
CROSS JOIN (SELECT db_now() + CASE $3 WHEN 'queued' THEN interval '-1 hour' ELSE interval '30 days' END) AS t (at)
"""


async def fill(connection: Connection, job_ids: Sequence[UUID], *, ended: int, failed_each: int, live: int) -> None:
    """Insert ended executions of the last days, dead letters, and executions that wait or are queued."""
    await connection.execute(PAST_DAYS)
    await connection.execute("UPDATE jobs SET active_from = db_now() - interval '5 days'")
    await connection.execute(FILL, list(job_ids), failed_each, ended)
    await connection.execute(BURY, list(job_ids), live)
    for state in ("waiting", "queued"):
        await connection.execute(LIVE, list(job_ids), live, state)
    await connection.execute("ANALYZE")


class Asked:
    """Every statement that requests ask of the server's database while it listens; those of duties are left out."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: dict[str, tuple[Any, ...]] = {}

        def note(record: Any) -> None:
            self.statements[record.query] = record.args

        listen(database, "connection", note, monkeypatch, _in_request)
        listen(database, "reading", note, monkeypatch, _in_request)

    def reads(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The statements that read, with their last arguments."""
        found = [(query, args) for query, args in self.statements.items() if "EXPLAIN" not in query]
        return [(query, args) for query, args in found if query.lstrip().upper().startswith(("SELECT", "WITH", "--"))]


def _in_request() -> bool:
    """Whether a request asks, itself or by a task that it started."""
    task = asyncio.current_task()
    own = task is not None and "run_asgi" in getattr(task.get_coro(), "__qualname__", "")
    return own or ORIGIN.get() is not None


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def scans(connection: Connection, query: str, args: Sequence[Any]) -> list[tuple[dict[str, Any], int]]:
    """The scans of big tables by a statement, each with the rows it looked at."""
    explained = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))[0]["Plan"]
    found = []
    for node in nodes(explained):
        if node.get("Relation Name", "").startswith(BIG):
            looked_at = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            looked_at += node.get("Rows Removed by Index Recheck", 0)
            found.append((node, round(looked_at * node["Actual Loops"])))
    return found

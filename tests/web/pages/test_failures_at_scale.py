"""The failure dashboard when there is much: its statements follow indexes and read no more than they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import executions
from mainspring.store.db import Database
from tests.conftest import Cluster
from tests.support.statements import listen

pytestmark = pytest.mark.anyio

EXECUTIONS, FAILED_EACH = 60_000, 40
BIG = ("history", "executions", "dead_letters", "attempts")
FILL = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, started_at, finished_at, error)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), job, n::text), job, 1, 1, 5, 1,
       CASE WHEN n % $2 = 0 THEN (ARRAY['failed', 'timed_out', 'lost'])[1 + n / $2 % 3] ELSE 'succeeded' END, 'manual',
       'short', at, at, at, at + interval '1 s', CASE WHEN n % $2 = 0 THEN 'no such row' END
FROM generate_series(1, $3::int) n
CROSS JOIN LATERAL (SELECT ($1::uuid[])[1 + n % cardinality($1::uuid[])]) AS j (job)
CROSS JOIN LATERAL (SELECT db_now() + n * interval '4 s') AS t (at)
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
                        due_at)
SELECT gen_random_uuid(), ($1::uuid[])[1 + n % cardinality($1::uuid[])], 1, 1, 0, 5, 'waiting', 'manual', 'short', 0,
       at, at
FROM generate_series(1, $2::int) n CROSS JOIN (SELECT db_now() + interval '30 days') AS t (at)
"""


class Asked:
    """Every statement that is asked of the server's database while it listens."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: dict[str, tuple[Any, ...]] = {}

        def note(record: Any) -> None:
            self.statements[record.query] = record.args

        listen(database, "connection", note, monkeypatch)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.requirement(69)
async def test_the_failure_dashboard_scans_nothing(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[UUID] = [
        await jobs.create(cluster.database, JobSpec(name=f"job-{n}", task=NoopTask()), tenant=1, by="test")
        for n in range(40)
    ]
    async with cluster.database.connection() as connection:
        await connection.execute(FILL, ids, FAILED_EACH, EXECUTIONS)
        await connection.execute(BURY, ids, 20_000)
        await connection.execute(LIVE, ids, 20_000)
        await connection.execute("ANALYZE")
        letter = await connection.fetchval("SELECT dead_letter_id FROM dead_letters LIMIT 1")
        since = await connection.fetchval("SELECT db_now()")

    assert cluster.database._tenants is not None
    asked = Asked(cluster.database._tenants, monkeypatch)  # statements of requests, not of leader duties
    bad = "state=failed&state=timed_out&state=lost"
    for path in (
        "/failures",
        "/failures?state=open",
        "/failures?job=job-3",
        f"/failures?job={ids[3]}&fingerprint=mistake-1",
        f"/failures/{letter}",
        f"/executions?{bad}",
        f"/executions?{bad}&job=job-3",
    ):
        answer = await browser.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "job-" in answer.text, path
    async with cluster.database.connection() as connection:
        found = await executions.failed_count(connection, tenant=1, since=since)
    assert found == EXECUTIONS // FAILED_EACH

    used: set[str] = set()
    assert sum(any(f" {table} " in query for table in BIG) for query in asked.statements) >= 5
    async with cluster.database.of(1).transaction() as connection:
        for query, args in list(asked.statements.items()):
            if not query.lstrip().upper().startswith(("SELECT", "WITH", "--")):
                continue
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
            for node in nodes(json.loads(explained)[0]["Plan"]):
                table = node.get("Relation Name", "")
                used.add(node.get("Index Name", ""))
                if table.startswith(BIG):
                    looked_at = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    # A day without a single row has no pages to read.
                    assert node["Node Type"] != "Seq Scan" or not looked_at, (query, json.dumps(node))
                    assert looked_at * node["Actual Loops"] <= 5000, (query, json.dumps(node))
    assert any("exceptions" in name or "tenant_id_state" in name for name in used), used
    assert "dead_letters_acting" in used

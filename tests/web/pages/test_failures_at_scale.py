"""The failure dashboard when there is much: its statements follow indexes and read no more than they show."""

from __future__ import annotations

import json
from uuid import UUID

import httpx2
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import executions
from tests.conftest import Cluster
from tests.support.scale import BIG, Asked, fill, scans

pytestmark = pytest.mark.anyio

EXECUTIONS, FAILED_EACH = 60_000, 41


@pytest.mark.requirement(69)
async def test_the_failure_dashboard_scans_nothing(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[UUID] = [
        await jobs.create(cluster.database, JobSpec(name=f"job-{n}", task=NoopTask()), tenant=1, by="test")
        for n in range(40)
    ]
    async with cluster.database.connection() as connection:
        since = await connection.fetchval("SELECT db_now() - interval '5 days'")
        await fill(connection, ids, ended=EXECUTIONS, failed_each=FAILED_EACH, live=20_000)
        letter = await connection.fetchval("SELECT dead_letter_id FROM dead_letters LIMIT 1")

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
        for query, args in asked.reads():
            for node, looked_at in await scans(connection, query, args):
                used.add(node.get("Index Name", ""))
                # A day without a single row has no pages to read.
                assert node["Node Type"] != "Seq Scan" or not looked_at, (query, json.dumps(node))
                assert looked_at <= 5000, (query, json.dumps(node))
    assert any("exceptions" in name or "tenant_id_state" in name for name in used), used
    assert "dead_letters_acting" in used

"""The start page, the list of jobs and the calendar over a large history: every statement follows an index."""

from __future__ import annotations

import json
from collections import Counter
from uuid import UUID

import httpx2
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.store.queries import q
from tests.conftest import Cluster
from tests.support.scale import Asked, fill, scans

pytestmark = pytest.mark.anyio

JOBS, ENDED, LIVE = 40, 80_000, 20_000
MAX_ROWS = 12_000
"""Of a table with several times as many: what is shown, and the samples that charts are drawn from."""
PLACES = (
    "/", "/jobs", "/jobs?tab=failing", "/jobs?tab=late", "/jobs?sort=health", "/jobs?q=job-1", "/calendar",
    "/queues", "/api/v1/jobs?limit=500", "/api/v1/executions?limit=200", "/executions?job=job-1&state=lost",
    "/api/v1/executions?job=job-1&state=cancelled",
)  # fmt: skip
GUARDED = (
    "failing_candidates", "open_letters", "live_runs", "line_heads", "paused_jobs", "failures_by_hour", "own_limits",
    "failing_jobs", "overdue_jobs", "last_executions", "job_stats", "list_exceptions_of_job",
)  # fmt: skip
"""Statements over tables that grow. Each must be among those that are explained, by the name it has in its file."""


@pytest.mark.requirement(69)
async def test_the_start_page_and_the_list_of_jobs_scan_no_history(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"task": NoopTask(), "schedule": ScheduleSpec(every="1h"), "finish_by": "2h", "max_gap": "3h"}
    ids: list[UUID] = [
        await jobs.create(cluster.database, JobSpec(name=f"job-{n}", **spec), tenant=1, by="test")  # type: ignore[arg-type]
        for n in range(JOBS)
    ]
    await jobs.pause(cluster.database, ids[-1], tenant=1, reason="a test", by="test")
    async with cluster.database.connection() as connection:
        await fill(connection, ids, ended=ENDED, failed_each=41, live=LIVE)
    asked = Asked(cluster.database, monkeypatch)
    for place in PLACES:
        answer = await browser.get(
            place, headers={"authorization": f"Bearer {cluster.token}"} if "api" in place else {}
        )
        assert answer.status_code == 200, (place, answer.text)
    reads = asked.reads()
    assert [name for name in GUARDED if q(name) not in dict(reads)] == []
    problems, tables = [], Counter[str]()
    async with cluster.database.transaction() as connection:
        for query, args in reads:
            for node, looked_at in await scans(connection, query, args):
                tables[node["Relation Name"].partition("_")[0]] += 1
                if (node["Node Type"] == "Seq Scan" and looked_at) or looked_at > MAX_ROWS:
                    problems.append(f"{looked_at} rows: {query}\n{json.dumps(node)}")
    assert tables["history"] > 20 and tables["executions"] > 5 and tables["dead"], tables
    assert not problems, "\n\n".join(problems)

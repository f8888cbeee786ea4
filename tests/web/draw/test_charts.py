from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.web.draw.charts import HEIGHT, job_charts
from tests.conftest import Cluster
from tests.support.live_page import listening, submit, until
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 11, 2, 3, 0, tzinfo=UTC)


def execution(number: int, **values: Any) -> wire.Execution:
    at = T0 + timedelta(minutes=number)
    plain: dict[str, Any] = {
        "execution_id": UUID(int=number), "job_id": UUID(int=1), "job": "j", "version": 1, "state": "succeeded",
        "trigger": "fire", "queue": "short", "priority": 5, "attempt": 1, "fire_at": at, "due_at": at, "queued_at": at,
        "started_at": at + timedelta(milliseconds=number), "finished_at": at + timedelta(minutes=1),
        "duration_ms": 10 * number, "exit_code": 0, "worker": "w", "cancelling": False, "reason": None, "error": None,
        "result": None, "params": None, "created_by": None, "fires": 1,
    }  # fmt: skip
    return wire.Execution(**(plain | values))


def test_percentiles_are_values_that_were_seen() -> None:
    found = job_charts([execution(n) for n in range(100, 0, -1)])
    assert [(name, value) for name, value, _ in found.duration.lines] == [("p50", 500), ("p95", 950), ("p99", 990)]
    assert [(name, value) for name, value, _ in found.delay.lines] == [("p50", 50), ("p95", 95), ("p99", 99)]
    first, last = found.duration.bars[0], found.duration.bars[-1]
    assert (first.execution_id, last.execution_id) == (UUID(int=1), UUID(int=100)) and first.x < last.x
    assert last.y == 0 and first.y == pytest.approx(HEIGHT * 0.99)


def test_only_what_ended_counts_and_a_retry_is_not_late() -> None:
    found = job_charts(
        [
            execution(5, state="running", finished_at=None, duration_ms=None),
            execution(4, state="skipped", duration_ms=None, started_at=None, attempt=0),
            execution(3, attempt=2),
            execution(2, state="failed"),
            execution(1),
        ]
    )
    assert (found.ended, found.succeeded) == (3, 2)
    assert [dot.value_ms for dot in found.duration.bars] == [10, 20, 30]
    assert [dot.value_ms for dot in found.delay.bars] == [1, 2]
    assert [name for name, _, _ in found.duration.lines] == ["p50"]
    assert job_charts([]).duration.bars == []


async def test_the_chart_of_a_job_lives(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await jobs.create(cluster.database, JobSpec(name="charted", task=NoopTask()), tenant=TENANT, by="test")
    path = f"/jobs/{job_id}/chart"
    assert "No executions have ended yet." in (await open_page(browser, path)).text
    async with cluster.worker(), listening(browser, f"/ui/stream?view=chart&job={job_id}") as events:
        await until(events, "No executions have ended yet.")
        execution_id = await submit(cluster, job_id)
        told = Page((await until(events, f"/executions/{execution_id}")).data)
        assert "1 of the last 1 execution succeeded (100.0 %)." in told.text
    page = await open_page(browser, path)
    assert page.active_parts() == [] and "charts" in page.ids()
    part = await browser.get(f"{path}?part=1")
    assert part.text.lstrip().startswith('<section id="charts"') and "content-security-policy" in part.headers
    assert (await browser.get("/jobs/nonsense/chart")).status_code == 404

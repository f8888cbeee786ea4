"""One definition of late: the tab of the jobs, the rows of the start page and its verdict agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views.overview import overview
from mainspring.views.verdict import verdict
from tests.conftest import Cluster
from tests.support.live_page import submit
from tests.support.pages import open_page
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

SLEEPING = ShellTask(argv=("sleep", "600"))


async def test_a_wait_for_the_jobs_own_limit_is_not_late_and_one_without_a_worker_is(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    async def add(spec: JobSpec) -> None:
        job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
        await submit(cluster, job_id)

    async with cluster.worker(slots=4):
        limited = JobSpec(name="limited", task=SLEEPING, concurrency=Concurrency(key="one", limit=1))
        job_id = await jobs.create(cluster.database, limited, tenant=TENANT, by="test")
        held = [await submit(cluster, job_id) for _ in range(2)]

        async def one_runs() -> bool:
            async with cluster.client() as client:
                return sorted([(await client.execution(e)).state for e in held]) == ["queued", "running"]

        await until_async("one of two executions runs", one_runs, within_s=60)
        await add(JobSpec(name="unserved", task=NoopTask(), queue="nobody"))
        gap = JobSpec(name="gap", task=NoopTask(), schedule=ScheduleSpec(cron="0 0 1 1 *"), max_gap="1h")
        gap_id = await jobs.create(cluster.database, gap, tenant=TENANT, by="test")
        past = datetime.now(UTC) - timedelta(days=2)
        async with cluster.database.connection() as connection:  # fires that are due since ten minutes
            await connection.execute(
                "UPDATE executions SET due_at = due_at - interval '10 minutes', trigger = 'fire' WHERE state = 'queued'"
            )
            await connection.execute("UPDATE jobs SET active_from = $2 WHERE job_id = $1", gap_id, past)
        found = await overview(cluster.database, cluster.context.run_views, tenant=TENANT)
        assert {job.job for job in found.attention.late} == {"unserved", "gap"}
        assert "2 jobs late" in str(verdict(found))
        page = await open_page(browser, "/jobs?tab=late")
        assert "Late 2" in page.text and " unserved " in page.text and " gap " in page.text
        assert " limited " not in page.text
        start = await open_page(browser, "/")
        assert "2 jobs late" in start.text and "it has not succeeded by its deadline" in start.text.lower()
        assert "no worker serves this queue; 1 job late" in start.text, "part of the queue's row"
        assert "limited" not in start.text[start.text.index("Needs you") : start.text.index("Running")]
        async with cluster.client() as client:
            for execution in held:
                await client.cancel(execution)

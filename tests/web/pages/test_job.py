from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.intake.executions import Submission
from tests.conftest import Cluster
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio


async def test_why_not_says_the_first_thing_in_the_way(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="held", task=NoopTask(), queue="nobody", schedule=ScheduleSpec(every="1h"))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, "/jobs/held/why")
    assert "Worker: no worker serves the queue nobody." in page.text
    await jobs.pause(cluster.database, job_id, tenant=TENANT, reason="<b>repairs</b>")
    page = await open_page(browser, "/jobs/held/why")
    assert "<b>repairs</b>. 1 more check blocks it." in page.text
    assert page.active_parts() == []


async def test_stats_are_of_what_ended_by_itself(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="counted", task=NoopTask())
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    async with cluster.worker():
        for _ in range(3):
            made = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
            await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30)
    page = await open_page(browser, "/jobs/counted/stats")
    assert page.text.count("33100.0 %") == 4, "ended, succeeded, and the share of each window"
    empty = await jobs.create(cluster.database, JobSpec(name="fresh-one", task=NoopTask()), tenant=TENANT, by="test")
    assert (await open_page(browser, f"/jobs/{empty}/stats")).text.count("00–") == 4

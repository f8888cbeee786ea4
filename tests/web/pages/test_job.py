from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.intake.executions import Submission
from mainspring.web.draw.filters import stamp
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


async def test_the_page_says_since_when_the_job_fails_and_shows_its_durations(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    task = ShellTask(argv=("sh", "-c", "exit $CODE"), env={"CODE": "{{params.code}}"})
    spec = JobSpec(name="breaks", task=task, params={"code": Param("integer", 0)}, retries=RetryPolicy(max=0))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    ended = []
    async with cluster.worker():
        for code in (0, 1, 1, 1):
            given = Submission(TENANT, "test", job_id, params={"code": code})
            made = await cluster.context.submitter.submit(given)
            ended.append(await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30))
    page = await open_page(browser, "/jobs/breaks")
    assert "failing since" in page.text and "3 in a row" in page.text
    assert stamp(ended[1].fire_at) in [a.get("datetime") for a in page.all("time")]
    charts = [a["aria-label"] or "" for a in page.all("svg") if a.get("role") == "group"]
    assert any(label.startswith("Duration of the last 4 executions") for label in charts)
    assert any(label.startswith("Start delay of the last 4 executions") for label in charts)


async def test_a_job_of_a_manifest_says_that_edits_are_undone(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    manifest = {
        "kind": "Job",
        "metadata": {"name": "from-file"},
        "spec": {"shell": ["true"], "schedule": {"every": "1h"}},
    }
    async with cluster.client() as client:
        await client.apply_manifests(wire.ApplyManifests(manifests=[manifest], owner="deploys"))
    await jobs.create(cluster.database, JobSpec(name="by-hand", task=NoopTask()), tenant=TENANT, by="test")
    for path in ("/jobs/from-file", "/jobs/from-file/edit", "/jobs/from-file/schedule"):
        assert "Managed by a manifest of the owner deploys" in (await open_page(browser, path)).text, path
        assert "Managed by" not in (await open_page(browser, path.replace("from-file", "by-hand"))).text, path

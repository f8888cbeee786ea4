from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import jobs
from mainspring.intake.executions import Submission
from mainspring.views import audit as audit_views
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import search
from mainspring.web.forms import bulk
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, posted
from tests.support.principals import without_ids

pytestmark = pytest.mark.anyio


async def add(cluster: Cluster, name: str, **spec: Any) -> UUID:
    spec = dict[str, Any](task=NoopTask(), queue="nobody") | spec
    return await jobs.create(cluster.database, JobSpec(name=name, **spec), tenant=TENANT, by="test")


async def through(browser: httpx2.AsyncClient, path: str, form: dict[str, str]) -> tuple[Page, int]:
    """Sends the form on as the script does, to the end; the last page, and how many there were."""
    for turn in range(1, 50):
        answer = await browser.post(path, data=form)
        assert answer.status_code == 200, Page(answer.text).text
        page = Page(answer.text)
        if not [f for f in page.all("form") if "data-continue" in f]:
            return page, turn
        form = posted(page)
    raise AssertionError("it does not end")


async def states(cluster: Cluster, prefix: str) -> list[str]:
    found = await job_views.list_jobs(cluster.database, tenant=TENANT, prefix=prefix, limit=200)
    return [job.state for job in found.items]


async def test_all_jobs_that_fit_are_paused_in_chunks(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK_ITEMS", 3)
    for number in range(8):
        await add(cluster, f"many-{number}", queue="odd" if number % 2 else "even")
    assert (await open_page(browser, "/jobs?q=many")).text.count("Bulk actions") == 1
    page = await open_page(browser, "/jobs:bulk?q=many&do=pause")
    assert "8 jobs match" in page.text
    assert "many-7" in page.text
    assert page.active_parts() == []
    assert await states(cluster, "many") == ["active"] * 8, "looking changes nothing"
    form = posted(page) | {"reason": "repairs"}
    last, turns = await through(browser, "/jobs:bulk", form)
    assert turns == 3
    assert "Pause: 8 jobs done" in last.text
    assert await states(cluster, "many") == ["paused"] * 8
    told = (await audit_views.list_entries(cluster.database, tenant=TENANT, action="job.pause")).items
    assert [(e.actor, e.reason) for e in told] == [("test admin", "repairs")] * 8
    assert (await job_views.get(cluster.database, "many-3", tenant=TENANT)).pause_reason == "repairs"
    form = posted(await open_page(browser, "/jobs:bulk?q=many+queue:odd")) | {"do": "resume"}
    await through(browser, "/jobs:bulk", form)
    assert await states(cluster, "many") == ["paused", "active"] * 4


async def test_what_is_refused_is_told_and_the_rest_goes_on(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "asked-a")
    await add(cluster, "asked-b", params={"n": Param("integer")})
    await add(cluster, "asked-c")
    form = posted(await open_page(browser, "/jobs:bulk?q=asked&do=run"))
    last, _ = await through(browser, "/jobs:bulk", form)
    assert "Run: 2 jobs done, 1 failed" in last.text
    assert "the parameter 'n' is required" in last.text
    again, _ = await through(browser, "/jobs:bulk", form)
    assert "Run: 2 jobs done" in again.text
    found = await search.find_executions(cluster.database, "asked", tenant=TENANT)
    assert len(found.items) == 2, "the same form sent again runs nothing again"
    other = posted(await open_page(browser, "/jobs:bulk?q=asked-a&do=run"))
    await through(browser, "/jobs:bulk", other)
    assert len((await search.find_executions(cluster.database, "asked", tenant=TENANT)).items) == 3


async def test_executions_are_cancelled_and_what_comes_meanwhile_is_not(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK_ITEMS", 2)
    job_id = await add(cluster, "stuck")
    for _ in range(5):
        await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    form = posted(await open_page(browser, "/executions:bulk?q=job:stuck+state:queued&do=cancel"))
    late = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    last, _ = await through(browser, "/executions:bulk", form | {"reason": "too many"})
    assert "Cancel: 5 executions done" in last.text
    found = await execution_views.list_executions(cluster.database, tenant=TENANT, job="stuck")
    assert [e.execution_id for e in found.items if e.state == "queued"] == [late]
    assert {without_ids(e.reason) for e in found.items if e.state == "cancelled"} == {
        "cancelled by test admin: too many"
    }


async def test_what_ended_is_requeued_once(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    failing = await add(cluster, "again-f", queue="short", task=ShellTask(argv=("false",)), retries=RetryPolicy(max=0))
    job_id = await add(cluster, "again-c")
    async with cluster.worker():
        failed = await cluster.context.submitter.submit(Submission(TENANT, "test", failing))
        await cluster.context.live.until_final(failed, tenant=TENANT, wait_s=30)
    cancelled = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id, params={"n": 1}))
    form = posted(await open_page(browser, "/executions:bulk?q=job:again-c&do=cancel"))
    await through(browser, "/executions:bulk", form)
    form = posted(await open_page(browser, "/executions:bulk?q=again+state:failed,cancelled&do=requeue"))
    last, _ = await through(browser, "/executions:bulk", form)
    assert "Requeue: 2 executions done" in last.text
    await through(browser, "/executions:bulk", form)
    made = (await search.find_executions(cluster.database, "again state:queued", tenant=TENANT)).items
    assert sorted((e.job, e.trigger) for e in made) == [("again-c", "manual"), ("again-f", "replay")]
    repeated = next(e for e in made if e.job == "again-c")
    first = await execution_views.get(cluster.database, cancelled, tenant=TENANT)
    assert (repeated.params, repeated.fire_at) == ({"n": 1}, first.fire_at)
    (told,) = (await audit_views.list_entries(cluster.database, tenant=TENANT, action="execution.requeue")).items
    assert (told.subject, told.details) == (str(cancelled), {"execution_id": str(repeated.execution_id)})


async def test_bad_input_is_told_and_changes_nothing(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "careful")
    form = posted(await open_page(browser, "/jobs:bulk?q=careful"))
    for wrong, status in (
        ({"do": "explode"}, 422),
        ({}, 422),
        ({"do": "pause", "progress": "x"}, 422),
        ({"do": "pause", "until": "never"}, 422),
        ({"do": "pause", "q": "sate:x"}, 422),
    ):
        assert (await browser.post("/jobs:bulk", data=form | wrong)).status_code == status, wrong
    assert (await browser.get("/jobs:bulk?q=sate:x")).status_code == 422
    assert await states(cluster, "careful") == ["active"]
    assert "Nothing matches." in (await open_page(browser, "/jobs:bulk?q=nobody-at-all")).text


async def test_a_deletion_of_many_says_why(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for number in range(3):
        await add(cluster, f"gone-{number}")
    form = posted(await open_page(browser, "/jobs:bulk?q=name:gone-")) | {"do": "delete", "reason": "old"}
    last, _ = await through(browser, "/jobs:bulk", form)
    assert "Delete: 3 jobs done" in last.text
    assert await states(cluster, "gone") == []


async def test_a_parameter_that_an_action_page_does_not_know_is_refused(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    """`filter` is the API's name: ignoring it would offer the action for all jobs."""
    job_id = await add(cluster, "narrow")
    for path in (
        "/jobs:bulk?filter=name:narrow",
        "/executions:bulk?filter=state:queued",
        f"/jobs/{job_id}/delete?jobs=other",
        f"/jobs/{job_id}/run?parameters=x",
        "/failures/plan?jobs=narrow",
    ):
        answer = await browser.get(path)
        assert answer.status_code == 422, path
        assert "nknown query parameter" in answer.text and "known: " in answer.text, path
    assert (await browser.get("/jobs:bulk?q=name:narrow&do=pause")).status_code == 200
    assert (await browser.get(f"/jobs/{job_id}/run?p_day=x&at=%2B10m")).status_code == 200

from __future__ import annotations

from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.workflow.spec import Approval, Step, WorkflowSpec
from mainspring.intake import jobs, workflows
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, posted
from tests.support.principals import without_ids
from tests.support.runs import spec

pytestmark = pytest.mark.anyio


async def add(cluster: Cluster, name: str) -> UUID:
    spec = JobSpec(name=name, task=NoopTask(), queue="nobody", schedule=ScheduleSpec(every="1h"))
    return await jobs.create(cluster.database, spec, tenant=TENANT, by="test")


async def begun(cluster: Cluster, name: str) -> wire.Run:
    steps = {"ask": Step(approval=Approval()), "then": Step(approval=Approval(), needs=("ask",))}
    await workflows.apply(cluster.database, WorkflowSpec(name=name, steps=steps), tenant=TENANT, by="test")
    return await run_actions.start(cluster.context.runs, name, wire.RunRequest(), tenant=TENANT, by="test")


async def test_a_pause_can_end_by_itself(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "rests")
    page = await open_page(browser, "/jobs/rests/pause")
    assert "Queued and running executions continue." in page.text
    assert "mainspring jobs pause rests" in page.text
    assert page.active_parts() == []
    assert (await job_views.get(cluster.database, "rests", tenant=TENANT)).state == "active"
    form = posted(page) | {"reason": "repairs"}
    for until, says in (("soon", "'soon' is not a time"), ("2020-01-01T00:00", "is in the past")):
        refused = await browser.post("/jobs/rests/pause", data=form | {"until": until})
        assert refused.status_code == 422
        assert says in Page(refused.text).text
        assert (posted(Page(refused.text))["reason"], posted(Page(refused.text))["until"]) == ("repairs", until)
    assert (await browser.post("/jobs/rests/pause", data=form | {"until": "2h"})).status_code == 303
    found = await job_views.get(cluster.database, "rests", tenant=TENANT)
    assert found.paused_at is not None and found.paused_until is not None
    assert 7190 < (found.paused_until - found.paused_at).total_seconds() < 7210


async def test_who_deletes_says_why(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "goes")
    execution = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    form = posted(await open_page(browser, "/jobs/goes/delete")) | {"reason": "nobody needs it"}
    assert (await browser.post("/jobs/goes/delete", data=form)).headers["location"] == "/jobs"
    found = await execution_views.get(cluster.database, execution, tenant=TENANT)
    assert (found.state, without_ids(found.reason)) == ("cancelled", "job deleted by test admin: nobody needs it")
    assert (await browser.get(f"/jobs/{job_id}/delete")).status_code == 404


async def test_an_execution_is_cancelled_after_a_question(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "waits")
    execution = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    shown = await open_page(browser, f"/executions/{execution}")
    assert f"/executions/{execution}/cancel" in [a.get("href") for a in shown.all("a")]
    page = await open_page(browser, f"/executions/{execution}/cancel")
    assert "It has not started, and will not start." in page.text
    form = posted(page) | {"reason": "not today"}
    assert (await browser.post(f"/executions/{execution}/cancel", data=form)).status_code == 303
    found = await execution_views.get(cluster.database, execution, tenant=TENANT)
    assert (found.state, without_ids(found.reason)) == ("cancelled", "cancelled by test admin: not today")
    assert (await browser.get(f"/executions/{execution}/cancel")).status_code == 409
    again = await open_page(browser, f"/executions/{execution}")
    assert f"/jobs/{job_id}/run?like={execution}" in [a.get("href") for a in again.all("a")]


async def test_steps_are_decided_after_a_question(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "decided")
    links = [a.get("href") or "" for a in (await open_page(browser, f"/runs/{run.run_id}")).all("a")]
    (approve,) = {link for link in links if link.endswith("what=approve")}  # on top, and in the row of the step
    page = await open_page(browser, approve)
    assert "Approve ask" in page.text
    form = posted(page) | {"reason": "looks right"}
    assert (await browser.post(f"/runs/{run.run_id}/decide", data=form)).status_code == 303
    skip = posted(await open_page(browser, f"/runs/{run.run_id}/decide?step=then&what=skip"))
    refused = await browser.post(f"/runs/{run.run_id}/decide", data=skip)
    assert refused.status_code == 422
    assert "a reason is required" in Page(refused.text).text
    assert (await browser.post(f"/runs/{run.run_id}/decide", data=skip | {"reason": "no need"})).status_code == 303
    ended = await cluster.context.run_views.get(run.run_id, tenant=TENANT)
    assert ended.state == "succeeded"
    assert "no need" in (ended.steps[1].reason or "")


@pytest.mark.parametrize(("what", "flag"), [("skip", "skipped"), ("complete", "forced")])
async def test_a_failed_step_is_freed_by_a_button(
    cluster: Cluster, browser: httpx2.AsyncClient, what: str, flag: str
) -> None:
    """Before the end of its run, and after it: then the browser is led to the run that continues."""
    gate = {"approval": {"self_approval": True}}
    steps = {"ask": gate, "then": {"needs": ["ask"], "wait": "24h"}, "other": gate}
    await workflows.apply(cluster.database, spec(f"freed-{what}", steps), tenant=TENANT, by="test")
    run = await run_actions.start(cluster.context.runs, f"freed-{what}", wire.RunRequest(), tenant=TENANT, by="test")

    async def reject(step: str) -> None:
        await run_actions.decide(
            cluster.context.runs,
            run.run_id,
            step,
            wire.Decision(),
            tenant=TENANT,
            by="test",
            scopes=["write"],
            approved=False,
        )

    async def free(step: str) -> str:
        links = [a.get("href") or "" for a in (await open_page(browser, f"/runs/{run.run_id}")).all("a")]
        (link,) = [link for link in links if link.endswith(f"step={step}&what={what}")]
        form = posted(await open_page(browser, link)) | {"reason": "seen to"}
        answer = await browser.post(f"/runs/{run.run_id}/decide", data=form)
        assert answer.status_code == 303
        return answer.headers["location"]

    await reject("ask")
    assert await free("ask") == f"/runs/{run.run_id}#step-ask"
    found = await cluster.context.run_views.get(run.run_id, tenant=TENANT)
    assert [(s.name, s.state, s.flag) for s in found.steps[:2]] == [
        ("ask", "skipped" if what == "skip" else "succeeded", flag),
        ("then", "waiting", None),
    ]
    await run_actions.skip(cluster.context.runs, run.run_id, "then", "no need", tenant=TENANT, by="test")
    await reject("other")
    assert (await cluster.context.run_views.get(run.run_id, tenant=TENANT)).state == "partial"
    assert (
        "a new run keeps what had succeeded"
        in (await open_page(browser, f"/runs/{run.run_id}/decide?step=other&what={what}")).text
    )
    new = (await free("other")).removeprefix("/runs/").partition("#")[0]
    assert new != str(run.run_id)
    page = await open_page(browser, f"/runs/{new}")
    assert "succeeded" in page.text


async def test_what_can_not_be_decided_is_said(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "undecided")
    assert (await browser.get(f"/runs/{run.run_id}/decide?step=ask&what=forget")).status_code == 422
    assert (await browser.get(f"/runs/{run.run_id}/decide?step=none&what=skip")).status_code == 404
    form = posted(await open_page(browser, f"/runs/{run.run_id}/cancel")) | {"reason": "enough"}
    assert (await browser.post(f"/runs/{run.run_id}/cancel", data=form)).status_code == 303
    assert (await cluster.context.run_views.get(run.run_id, tenant=TENANT)).state in ("cancelling", "cancelled")


async def test_a_run_is_repeated_from_a_step(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "repeated")
    for step in ("ask", "then"):
        form = posted(await open_page(browser, f"/runs/{run.run_id}/decide?step={step}&what=approve"))
        await browser.post(f"/runs/{run.run_id}/decide", data=form)
    page = await open_page(browser, f"/runs/{run.run_id}/rerun")
    assert [o.get("value") for o in page.all("option")] == ["", "ask", "then"]
    answer = await browser.post(f"/runs/{run.run_id}/rerun", data=posted(page) | {"from_step": "then"})
    again = await cluster.context.run_views.get(UUID(answer.headers["location"].split("/")[-1]), tenant=TENANT)
    assert (again.rerun_of, again.steps[0].flag, again.steps[1].state) == (run.run_id, "kept", "waiting")

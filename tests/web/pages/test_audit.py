"""The page of what people did: filters in the address, links both ways, and what it says when there is nothing."""

from __future__ import annotations

import html
from datetime import timedelta

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.audit import ACTIONS
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import executions, jobs, queues
from mainspring.intake.executions import Submission
from mainspring.testing.clock import START
from mainspring.web.pages.audit import action_label, details, page_of
from mainspring.web.render import now
from tests.conftest import Cluster
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio


def rows(page: Page) -> list[str]:
    return sorted(i for i in page.ids() if i.startswith("a-"))


def hrefs(page: Page) -> set[str]:
    return {a["href"] or "" for a in page.all("a")}


async def test_who_did_what_to_what_and_why(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    database = cluster.database
    spec = JobSpec(name="report", task=NoopTask(), schedule=ScheduleSpec(every="1h"))
    job_id = await jobs.create(database, spec, tenant=TENANT, by="test")
    other = await jobs.create(database, JobSpec(name="other", task=NoopTask()), tenant=TENANT, by="test")
    await jobs.pause(database, job_id, tenant=TENANT, by="a <new> user", reason="holiday & rest")
    await jobs.patch(database, other, {"priority": 7}, tenant=TENANT, by="test")
    later = now() + timedelta(hours=1)
    made = await cluster.context.submitter.submit(Submission(TENANT, "test", other, later))
    await executions.cancel(database, made, tenant=TENANT, reason="not needed", by="test")
    await queues.change(database, "long", {"paused": True}, tenant=TENANT, by="test")

    page = await open_page(browser, "/audit")
    assert "a <new> user" in page.text and "holiday & rest" in page.text and "pause job" in page.text
    assert page.active_parts() == []
    assert {f"/jobs/{job_id}", f"/jobs/{other}", f"/executions/{made}", "/queues#q-long"} <= hrefs(page)
    everything = rows(page)
    of_job = await open_page(browser, f"/audit?subject={job_id}")
    assert len(rows(of_job)) < len(everything) and "holiday & rest" in of_job.text and "not needed" not in of_job.text
    assert rows(await open_page(browser, "/audit?subject=report")) == rows(of_job)
    by_test = await open_page(browser, "/audit?actor=test")
    assert "holiday" not in by_test.text and "not needed" in by_test.text
    edits = await open_page(browser, "/audit?action=job.edit")
    assert "fields: priority" in edits.text and "not needed" not in edits.text
    assert "not needed" in (await open_page(browser, "/audit?action=execution")).text
    none = await open_page(browser, "/audit?actor=nobody")
    assert "No entries match." in none.text and rows(none) == []

    for path in (f"/jobs/{job_id}", f"/executions/{made}"):
        subject = path.rpartition("/")[2]
        assert f"/audit?subject={subject}" in hrefs(await open_page(browser, path))


async def test_it_goes_on_by_cursor_and_says_what_is_wrong(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.web.pages.audit.ENTRIES_SHOWN", 2)
    job_id = await jobs.create(cluster.database, JobSpec(name="a", task=NoopTask()), tenant=TENANT, by="test")
    for priority in (1, 2, 3, 4, 6):
        await jobs.patch(cluster.database, job_id, {"priority": priority}, tenant=TENANT, by="test")
    seen: list[str] = []
    path = f"/audit?action=job.edit&subject={job_id}"
    while path:
        page = await open_page(browser, path)
        seen += rows(page)
        path = next((a["href"] or "" for a in page.all("a") if a.get("rel") == "next"), "")
    assert len(seen) == len(set(seen)) == 5
    for query in ("action=job.fly", "cursor=x", "action=%3Cb%3E"):
        answer = await browser.get(f"/audit?{query}")
        assert answer.status_code == 422 and Page(answer.text).active_parts() == []
    assert "unknown action" in html.unescape((await browser.get("/audit?action=job.fly")).text)


async def test_only_operators_see_it(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=TENANT, name="reader", scopes=("read",))
    headers = {"authorization": f"Bearer {token}"}
    assert (await stranger.get("/audit", headers=headers)).status_code == 403
    jobs_page = await stranger.get("/jobs", headers=headers)
    assert jobs_page.status_code == 200 and "/audit" not in jobs_page.text


def test_every_action_has_words_and_a_place() -> None:
    for action in ACTIONS:
        entry = wire.AuditEntry(
            audit_id=1, at=START, actor="test", action=action, subject="0192f0c1-2345-8678-9abc-def012345678"
        )
        assert page_of(entry).startswith("/"), action
        assert "_" not in action_label(action) and "." not in action_label(action)
    entry = wire.AuditEntry(
        audit_id=1, at=START, actor="test", action="queue.change", subject="a/b", details={"a_b": [1, "c"]}
    )
    assert page_of(entry) == "/queues#q-a/b" and details(entry) == "a b: 1 c"

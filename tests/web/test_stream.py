from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.store import tokens
from mainspring.web.stream import message
from tests.conftest import Cluster
from tests.support.live_page import listening, submit, until
from tests.support.pages import Page, sign_in

pytestmark = pytest.mark.anyio


def top_elements(data: str) -> set[str]:
    found, depth = set(), 0
    for closing, tag in re.findall(r"<(/?)(tr|section|div)\b", data):
        if not closing and depth == 0:
            found.add(tag)
        depth += -1 if closing else 1
    return found


async def test_the_feed_shows_executions_without_a_reload(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await jobs.create(cluster.database, JobSpec(name="seen", task=NoopTask()), tenant=TENANT, by="test")
    async with cluster.worker(), listening(browser, "/ui/stream?view=now") as events:
        first = Page((await anext(events)).data)
        assert {"verdict", "needs-you", "upcoming"} <= first.ids()
        execution_id = await submit(cluster, job_id)
        told = await until(events, f'id="e-{execution_id}"')
        assert "seen" in Page(told.data).text
        assert top_elements(told.data) == {"tr"}  # a browser drops rows that come after anything else


@pytest.mark.parametrize("view", ["now", "workers", "queues", "system"])
async def test_an_overview_begins_with_its_current_state(
    cluster: Cluster, browser: httpx2.AsyncClient, view: str
) -> None:
    async with listening(browser, f"/ui/stream?view={view}") as events:
        assert "<" in (await anext(events)).data


async def test_what_no_worker_takes_is_shown_as_queued(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="stuck", task=NoopTask(), queue="nobody")
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    for view in ("now", f"executions&job={job_id}"):
        async with listening(browser, f"/ui/stream?view={view}") as events:
            await anext(events)
            execution_id = await submit(cluster, job_id)
            told = await until(events, f'id="e-{execution_id}"')
            assert "queued" in Page(told.data).text


async def test_a_browser_that_comes_back_is_told_what_it_missed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await jobs.create(cluster.database, JobSpec(name="missed", task=NoopTask()), tenant=TENANT, by="test")
    async with cluster.worker():
        execution_id = await submit(cluster, job_id)
        await cluster.context.live.until_final(execution_id, tenant=TENANT, wait_s=30)
    async with listening(browser, "/ui/stream?view=executions&job=missed") as events:
        assert f"e-{execution_id}" in Page((await anext(events)).data).ids()


async def test_a_row_that_left_the_filter_is_only_brought_up_to_date(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    other = await jobs.create(cluster.database, JobSpec(name="other", task=NoopTask()), tenant=TENANT, by="test")
    mine = await jobs.create(cluster.database, JobSpec(name="mine", task=NoopTask()), tenant=TENANT, by="test")
    path = f"/ui/stream?view=executions&state=failed&job={mine}"
    async with cluster.worker(), listening(browser, path) as events:
        await submit(cluster, other)
        execution_id = await submit(cluster, mine)
        told = await until(events, f'id="e-{execution_id}"')
        rows = Page(f"<table>{told.data}</table>").all("tr")
        assert [(row["id"], "data-known" in row) for row in rows] == [(f"e-{execution_id}", True)]


async def test_the_page_of_a_job_keeps_its_fires_ahead(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="ticking", task=NoopTask(), schedule=ScheduleSpec(every="1s"))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    async with listening(browser, f"/ui/stream?view=job&job={job_id}") as events:
        first = await until(events, 'id="fires"')
        again = await until(events, 'id="fires"')
    for told in (first, again):
        assert Page(told.data).text.count("UTC") == 10, "ten fires"
    assert first.data != again.data


async def test_the_list_of_jobs_follows_a_pause(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await jobs.create(cluster.database, JobSpec(name="listed", task=NoopTask()), tenant=TENANT, by="test")
    async with listening(browser, "/ui/stream?view=jobs&prefix=list") as events:
        first = await anext(events)
        assert top_elements(first.data) == {"tr"}
        assert "Pause" in Page(first.data).text
        await jobs.pause(cluster.database, job_id, tenant=TENANT, reason="")
        await until(events, "Resume")


async def test_output_comes_live_and_resumes_where_it_broke(
    cluster: Cluster, browser: httpx2.AsyncClient, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    script = 'echo one "<b>"; until [ -e "$0" ]; do sleep 0.02; done; echo two >&2'
    task = ShellTask(argv=("sh", "-c", script, str(door)))
    job_id = await jobs.create(cluster.database, JobSpec(name="talker", task=task), tenant=TENANT, by="test")
    async with cluster.worker():
        execution_id = await submit(cluster, job_id)
        path = f"/ui/stream?view=execution&execution={execution_id}"
        async with listening(browser, path) as events:
            first = await until(events, "one &lt;b&gt;")
            assert first.event == "log"
        door.touch()
        browser.headers["last-event-id"] = first.identity
        async with listening(browser, path) as events:
            rest = [told async for told in events]
    html = "".join(told.data for told in rest if told.event == "log")
    assert re.match(r'<span class="err" data-at="1\.1" data-time="\d\d:\d\d:\d\d\.\d{3}">two', html)
    assert "succeeded" in Page([told.data for told in rest if not told.event][-1]).text
    assert rest[-1].event == "end"


async def test_a_revoked_token_ends_the_stream(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=TENANT, name="short-lived", scopes=("read",))
    await sign_in(stranger, token)
    async with listening(stranger, "/ui/stream?view=workers") as events:
        await anext(events)
        async with cluster.database.connection() as connection:
            await tokens.revoke_tokens_named(connection, tenant=TENANT, name="short-lived")
        async for _ in events:
            pass
    assert (await stranger.get("/workers")).headers["location"].startswith("/login")


async def test_nobody_listens_after_the_browser_left(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    def listeners() -> int:
        return sum(task.get_name() == "web.stream" for task in asyncio.all_tasks())

    before = listeners()
    async with listening(browser, "/ui/stream?view=now") as events:
        await anext(events)
        assert listeners() == before + 1
    async with asyncio.timeout(20):
        while listeners() > before:
            await asyncio.sleep(0)


def test_no_text_can_name_fields_of_its_own() -> None:
    told = message("a\rid: 9\r\nevent: x\ndata: y\n\nz", event="log", identity="1.2")
    assert told == ("event: log\nid: 1.2\ndata: a\ndata: id: 9\ndata: event: x\ndata: data: y\ndata: \ndata: z\n\n")

"""From the start page to the fix in at most four clicks.

A failing job, an approval, a blackout, a late job, a queue without workers. Every step after the start page is a click
of the reader that is counted; afterwards the verdict of the start page is good again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from mainspring import wire
from mainspring.manifest import read_workflows
from tests.browser.conftest import Site
from tests.support.processes import Dev, dev, until_async

pytestmark = pytest.mark.anyio

MAX_CLICKS = 4
RELEASE = """
kind: Workflow
metadata: {name: release}
spec:
  steps:
    build: {shell: [echo, built]}
    sign: {approval: {message: "Release {{params.build}}?", self_approval: true}, needs: [build]}
  params: {build: {type: string, default: b42}}
"""


class Walk:
    """Clicks of a reader who starts at the start page, and gets from page to page by clicks alone."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    async def begin(self) -> None:
        await self.page.goto("/")

    async def click(self, what: Locator) -> None:
        """A click that stays on the page, or opens a dialog in it."""
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS
        await what.click()

    async def follow(self, what: Locator) -> None:
        """A click that leads to another page; its scripts have run afterwards."""
        async with self.page.expect_event("load"):
            await self.click(what)

    def row(self, name: str) -> Locator:
        return self.page.locator("#needs-you li", has_text=name)

    async def end(self) -> None:
        """The start page says that nothing needs a person."""
        await self.page.goto("/")
        await expect(self.page.locator("h1.verdict.good")).to_contain_text("All is well")
        await expect(self.page.locator("#needs-you .count")).to_have_count(0)


def at_milliseconds(at: datetime) -> datetime:
    """An instant as pages have it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


@asynccontextmanager
async def worker_by(command: str, running: Dev) -> AsyncIterator[None]:
    """The worker that a command of the page starts, with a token of its own."""
    async with running.client() as client:
        token = (await client.issue_worker_token(wire.NewWorkerToken(name="walk", queues=["gpu"]))).token
    known = {"MAINSPRING_URL": f"http://127.0.0.1:{running.port}", "MAINSPRING_TOKEN": token}
    program = [sys.executable, "-m", "mainspring.cli.main", *command.split()[1:]]
    folder = running.folder / "worker"
    folder.mkdir()
    with (folder / "screen.txt").open("wb") as screen:
        process = await asyncio.create_subprocess_exec(
            *program, cwd=folder, env={**os.environ, **known}, stdout=screen, stderr=screen
        )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def narrow_site(chromium: Browser, tmp_path: Path) -> AsyncIterator[Site]:
    """A server whose worker has one slot."""
    async with dev(tmp_path, "--slots", "1") as running:
        yield Site(running, chromium)


async def test_a_failing_job_is_replayed(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        flag = empty_site.running.folder / "ledger-is-back"
        await client.create_job(
            {"name": "ledger", "task": {"kind": "shell", "argv": ["test", "-e", str(flag)]}, "retries": {"max": 0}}
        )
        made = await client.trigger("ledger")
        await client.wait(made.execution_id, timeout_s=60)
    walk = Walk(page)
    await walk.begin()
    await expect(page.locator("h1.verdict.bad")).to_contain_text("1 job failing")
    await expect(walk.row("ledger")).to_contain_text("exit code 1")
    await walk.follow(walk.row("ledger").get_by_role("link", name="Investigate"))
    await expect(page.get_by_role("group", name="Error")).to_contain_text("exit code 1")
    flag.touch()
    await walk.follow(page.get_by_role("button", name="Replay"))
    await expect(page.locator("#head .state")).to_contain_text("succeeded")
    await walk.end()


async def test_an_approval_is_given(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        for spec in read_workflows(RELEASE):
            await client.apply_workflow(spec)
        run = await client.start_run("release")
        walk = Walk(page)
        await walk.begin()
        await expect(walk.row("release / sign")).to_contain_text("Release b42?")
        await walk.click(walk.row("release / sign").get_by_role("link", name="Approve…"))
        await walk.follow(page.locator("dialog").get_by_role("button", name="Approve sign"))
        assert (await client.wait(run.run_id, timeout_s=60)).state == "succeeded"
    await walk.end()


async def test_a_blackout_is_ended(empty_site: Site, page: Page) -> None:
    now = datetime.now(UTC)
    async with empty_site.running.client() as client:
        await client.create_job({"name": "ticking", "task": {"kind": "noop"}, "schedule": {"every": "1h"}})
        window = wire.NewBlackout(
            start_at=now - timedelta(minutes=1), end_at=now + timedelta(hours=9), reason="a deploy"
        )
        await client.add_blackout(window)
    walk = Walk(page)
    await walk.begin()
    await expect(page.locator("h1.verdict.held")).to_contain_text("A blackout holds all fires back")
    await expect(page.locator(".banner")).to_contain_text("a deploy")
    await expect(page.locator("#upcoming")).not_to_contain_text("in 5")
    await walk.follow(page.locator(".banner").get_by_role("button", name="End blackout"))
    await expect(page.locator(".banner")).to_have_count(0)
    await expect(page.locator("#upcoming")).to_contain_text("ticking")
    await walk.end()


async def test_a_late_job_gets_a_slot(narrow_site: Site) -> None:
    """Its only worker is busy with an execution that hangs: the page names it, and the reader cancels it.

    The open start page says so without being loaded again, with the instant that the API has, and once: not in every
    fire that follows. After the fix the job fires and succeeds as before.
    """
    async with narrow_site.running.client() as client, narrow_site.visitor() as (context, _):
        hanging = {"name": "hanging", "task": {"kind": "shell", "argv": ["sleep", "3000"]}}
        await client.create_job({**hanging, "retries": {"max": 0}})
        holder = await client.trigger("hanging")

        async def runs() -> bool:
            return (await client.execution(holder.execution_id)).state == "running"

        await until_async("a running execution", runs, within_s=60)
        walk = Walk(page := await context.new_page())
        await walk.begin()
        await expect(page.locator("h1.verdict.good")).to_be_visible()
        await client.create_job({"name": "urgent", "task": {"kind": "noop"}, "schedule": {"every": "5s"}})
        await expect(page.locator("h1.verdict.bad")).to_contain_text("1 job late")
        row = walk.row("urgent")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text("The worker local is busy")
        (waiting,) = (await client.executions(job="urgent", state=["queued"])).items
        due = await row.locator("time").first.get_attribute("datetime")
        assert due is not None and datetime.fromisoformat(due) == at_milliseconds(waiting.due_at)
        assert "the worker local is busy" in (await client.why(waiting.execution_id)).reasons[0].message
        await walk.follow(row.get_by_role("link", name="Open"))
        assert page.url.endswith(f"/executions/{waiting.execution_id}")
        reasons = page.get_by_role("group", name="Why it waits")
        await expect(reasons).to_contain_text("The worker local is busy")
        await walk.follow(reasons.get_by_role("link", name=str(holder.execution_id)[:18]))
        await walk.click(page.get_by_role("link", name="Cancel…"))
        await walk.follow(page.locator("dialog").get_by_role("button", name="Cancel execution"))
        assert (await client.wait(waiting.execution_id, timeout_s=60)).state == "succeeded"

        async def fires_again() -> bool:
            done = (await client.executions(job="urgent", state=["succeeded"])).items
            return any(e.fire_at > waiting.fire_at for e in done)

        await until_async("a later fire that succeeds", fires_again, within_s=60)
        await walk.end()
        await page.goto("/jobs?tab=late")
        await expect(page.get_by_text("No job is late.")).to_be_visible()


async def test_a_queue_gets_a_worker(empty_site: Site, page: Page) -> None:
    """No worker serves it: the page has the command that starts one."""
    async with empty_site.running.client() as client:
        await client.create_job({"name": "stranded", "task": {"kind": "noop"}, "queue": "gpu"})
        made = await client.trigger("stranded")
        walk = Walk(page)
        await walk.begin()
        await expect(page.locator("h1.verdict.bad")).to_contain_text("1 queue without workers")
        await expect(walk.row("gpu")).to_contain_text("no worker serves this queue")
        command = await walk.row("gpu").locator("code").inner_text()
        assert command == "mainspring worker -q gpu"
        async with worker_by(command, empty_site.running):
            assert (await client.wait(made.execution_id, timeout_s=60)).state == "succeeded"
            await walk.end()

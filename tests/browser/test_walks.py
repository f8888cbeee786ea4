"""From the start page to the fix in at most four clicks: a failing job, an approval, a blackout, a late job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Locator, Page, expect

from mainspring import wire
from mainspring.manifest import read_workflows
from tests.browser.conftest import Site

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
    """Clicks of a reader who starts at the start page."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    async def click(self, what: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS
        await what.click()

    def row(self, name: str) -> Locator:
        return self.page.locator("#needs-you li", has_text=name)


async def test_a_failing_job_is_replayed(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        flag = empty_site.running.folder / "ledger-is-back"
        await client.create_job(
            {"name": "ledger", "task": {"kind": "shell", "argv": ["test", "-e", str(flag)]}, "retries": {"max": 0}}
        )
        made = await client.trigger("ledger")
        await client.wait(made.execution_id, timeout_s=60)
    walk = Walk(page)
    await page.goto("/")
    await expect(walk.row("ledger")).to_contain_text("exit code 1")
    await walk.click(walk.row("ledger").get_by_role("link", name="Investigate"))
    await expect(page.get_by_role("group", name="Error")).to_contain_text("exit code 1")
    flag.touch()
    await walk.click(page.get_by_role("button", name="Replay"))
    await expect(page.locator("#head .state")).to_contain_text("succeeded")
    await page.goto("/")
    await expect(walk.row("ledger")).to_have_count(0)


async def test_an_approval_is_given(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        for spec in read_workflows(RELEASE):
            await client.apply_workflow(spec)
        run = await client.start_run("release")
        walk = Walk(page)
        await page.goto("/")
        await expect(walk.row("release / sign")).to_contain_text("Release b42?")
        await walk.click(walk.row("release / sign").get_by_role("link", name="Approve…"))
        await walk.click(page.locator("dialog").get_by_role("button", name="Approve sign"))
        assert (await client.wait(run.run_id, timeout_s=60)).state == "succeeded"
    await page.goto("/")
    await expect(walk.row("release / sign")).to_have_count(0)


async def test_a_blackout_is_ended(empty_site: Site, page: Page) -> None:
    now = datetime.now(UTC)
    async with empty_site.running.client() as client:
        await client.create_job({"name": "ticking", "task": {"kind": "noop"}, "schedule": {"every": "1h"}})
        window = wire.NewBlackout(
            start_at=now - timedelta(minutes=1), end_at=now + timedelta(hours=9), reason="a deploy"
        )
        await client.add_blackout(window)
    walk = Walk(page)
    await page.goto("/jobs")
    await expect(page.locator(".banner")).to_contain_text("a deploy")
    await page.goto("/")
    await expect(page.locator("#upcoming")).not_to_contain_text("ticking in 5")
    await walk.click(page.locator(".banner").get_by_role("button", name="End blackout"))
    await expect(page.locator(".banner")).to_have_count(0)
    await expect(page.locator("#upcoming")).to_contain_text("ticking")


async def test_a_late_job_gets_its_queue_back(empty_site: Site, page: Page) -> None:
    """No worker serves its queue: the page says which, and the job is moved."""
    async with empty_site.running.client() as client:
        await client.create_job(
            {"name": "stranded", "task": {"kind": "noop"}, "queue": "gpu", "schedule": {"every": "1h"}}
        )
        made = await client.trigger("stranded")
        walk = Walk(page)
        await page.goto("/")
        await expect(walk.row("gpu")).to_contain_text("no worker serves this queue")
        await page.goto(f"/executions/{made.execution_id}")
        await expect(page.get_by_role("group", name="Why it waits")).to_contain_text("No worker serves the queue gpu")
        await walk.click(page.get_by_role("link", name="Cancel…"))
        await walk.click(page.locator("dialog").get_by_role("button", name="Cancel execution"))
        await expect(page.locator("#head .state")).to_contain_text("cancelled")
    await page.goto("/")
    await expect(walk.row("gpu")).to_have_count(0)

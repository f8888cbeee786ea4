"""What comes after the first job: functions from a file, a workflow, a change, a cancellation, an end."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Page, expect

from mainspring.domain.errors import NotFound
from tests.browser.conftest import Site
from tests.support.processes import until_async

COUNTS = """
import pathlib, time
import mainspring as ms

@ms.job(retries=0)
def counts(until: str) -> dict:
    seen = 0
    for seen in ms.track(range(2000), total=2000):
        if pathlib.Path(until).exists():
            break
        time.sleep(0.05)
    return {"stopped": seen > 0}
"""
FLOW = """kind: Workflow
metadata: {name: first-flow}
spec:
  steps:
    fetch: {shell: [echo, fetched]}
    check: {shell: [echo, checked], needs: [fetch]}
    publish: {shell: [echo, published], needs: [check]}
"""


async def test_a_function_from_a_file_shows_how_far_it_is(empty_site: Site, page: Page, tmp_path: Path) -> None:
    folder = empty_site.running.folder / "jobs"
    folder.mkdir(exist_ok=True)
    (folder / "counting.py").write_text(COUNTS)
    async with empty_site.running.client() as client:

        async def loaded() -> bool:
            try:
                return bool(await client.job("counts"))
            except NotFound:
                return False

        await until_async("the function to be a job", loaded, within_s=60)
    await page.goto("/jobs/counts")
    await page.locator(".title").get_by_role("link", name="Run").click()
    dialog = page.locator("dialog[open]")
    await dialog.get_by_label("until").fill(str(tmp_path / "enough"))
    await dialog.get_by_role("button", name="Run", exact=True).click()
    await page.wait_for_url(re.compile("/executions/"))
    await expect(page.locator("#head .progress")).to_have_text(re.compile(r"[1-9]\d* % · \d+/2,?000"))
    (tmp_path / "enough").touch()
    await expect(page.locator("#head .state").first).to_contain_text("succeeded")
    await expect(page.locator("#details")).to_contain_text('"stopped": true')


async def test_a_workflow_is_written_drawn_and_run(page: Page) -> None:
    await page.goto("/workflows/new")
    await page.locator("#f-text").fill(FLOW.replace("needs: [check]", "needs: [chek]"))
    await page.get_by_role("button", name="Review").click()
    wrong = page.get_by_role("alert")
    await expect(wrong).to_be_focused()
    await expect(wrong).to_contain_text("chek")
    await page.locator("#f-text").fill(FLOW)
    await page.get_by_role("button", name="Review").click()
    await expect(page.locator(".review .sentence")).to_have_text("3 steps, on demand")
    await expect(page.locator("#preview-body .node")).to_have_count(3)
    await page.get_by_role("button", name="Create first-flow").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("first-flow")
    await page.get_by_role("button", name="Run now").click()
    await page.wait_for_url(re.compile("/runs/"))
    await expect(page.locator("#picture .node.good")).to_have_count(3)
    await expect(page.locator("#run-head .state")).to_contain_text("succeeded")
    for view in ("Grid", "Gantt"):
        await page.get_by_role("link", name=view, exact=True).click()
        await expect(page.locator("#steps")).to_contain_text("publish")


async def test_a_job_is_changed_cancelled_and_deleted(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        await client.create_job({"name": "lasting", "task": {"kind": "shell", "argv": ["sleep", "600"]}})
    await page.goto("/jobs/lasting")
    await page.get_by_role("link", name="Edit schedule").click()
    await page.get_by_label("Schedule", exact=True).fill("0 3 * * SUN")
    await expect(page.locator("#proposed .sentence")).to_have_text("At 03:00 on Sunday")
    await page.get_by_role("button", name="Save as version 2").click()
    await expect(page.locator("main")).to_contain_text("At 03:00 on Sunday")
    await page.get_by_role("link", name="Versions").click()
    await expect(page.locator(".versions li")).to_have_count(2)
    await page.get_by_role("button", name="Run now").click()
    await page.wait_for_url(re.compile("/executions/"))
    await expect(page.locator("#head .state").first).to_contain_text("running")
    await page.get_by_role("link", name="Cancel").click()
    await page.locator("dialog[open]").get_by_role("textbox").fill("no longer needed")
    await page.locator("dialog[open]").get_by_role("button", name="Cancel execution").click()
    await expect(page.locator("#head .state").first).to_contain_text("cancelled")
    await expect(page.locator("#head .alarm")).to_contain_text("no longer needed")
    await page.goto("/jobs/lasting")
    await page.get_by_role("link", name="Delete").click()
    await page.locator("dialog[open]").get_by_role("button", name="Delete lasting").click()
    await page.wait_for_url(re.compile(r"/jobs(\?|$)"))
    await expect(page.locator("tbody td.name", has_text="lasting")).to_have_count(0)


async def test_hours_of_the_calendar_are_dragged_over_to_list_their_fires(empty_site: Site, page: Page) -> None:
    """The form below does the same, without a mouse and without script."""
    async with empty_site.running.client() as client:
        await client.create_job({"name": "dragged", "task": {"kind": "noop"}, "schedule": {"cron": "20 * * * *"}})
    await page.goto("/calendar", wait_until="load")
    await expect(page.get_by_text("Or drag over the hours.")).to_be_visible()
    await expect(page.locator(".heat .now-line")).to_have_count(1)
    tomorrow = page.locator(".heat tbody tr td:nth-child(10)")
    await tomorrow.nth(3).hover()
    await page.mouse.down()
    await tomorrow.nth(4).hover()
    await tomorrow.nth(5).hover()
    await expect(page.locator(".heat .spanned")).to_have_count(3)
    async with page.expect_event("load"):
        await page.mouse.up()
    fires = page.locator("#range .agenda tbody tr")
    await expect(fires).to_have_count(3)
    await expect(fires.first).to_contain_text("dragged")
    await expect(page.locator(".heat .chosen")).to_have_count(3)
    begin = await page.get_by_label("From", exact=True).input_value()
    assert begin.endswith("T03:00")
    await page.get_by_label("To", exact=True).fill(f"{begin[:11]}05:00")
    async with page.expect_event("load"):
        await page.get_by_role("button", name="List fires").click()
    await expect(fires).to_have_count(2)

"""The list of jobs in a browser: selection, actions of a row, density and saved views."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Page, expect

from tests.browser.conftest import Site

NAMES = ("list-a", "list-b", "list-c", "list-d")


async def add_jobs(site: Site) -> dict[str, str]:
    """The ids of jobs that exist, by name."""
    async with site.running.client() as client:
        known = {job.name: str(job.job_id) for job in (await client.jobs()).items}
        for name in NAMES:
            if name not in known:
                known[name] = str((await client.create_job({"name": name, "task": {"kind": "noop"}})).job_id)
    return known


async def test_selected_jobs_and_no_others_are_paused(empty_site: Site, page: Page) -> None:
    ids = await add_jobs(empty_site)
    await page.goto("/jobs?q=list-")
    boxes = page.locator("input[name='job']")
    await expect(boxes).to_have_count(len(NAMES))
    bar = page.locator("#picked")
    await expect(bar).to_be_hidden()
    await page.get_by_label("Select list-a").check()
    await page.get_by_label("Select list-c").click(modifiers=["Shift"])
    await expect(bar).to_contain_text("3 jobs selected")
    await page.get_by_label("Select list-b").uncheck()
    await expect(bar).to_contain_text("2 jobs selected")
    await bar.get_by_role("button", name="Pause…").click()
    await expect(page.get_by_role("main")).to_contain_text("2 jobs")
    assert sorted(parse_qs(urlsplit(page.url).query)["job"]) == sorted([ids["list-a"], ids["list-c"]])
    await page.get_by_label("Reason").fill("stocktaking")
    await page.get_by_role("button", name="Apply to all 2 jobs").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("2 jobs done")
    await page.goto("/jobs?q=list-+state:paused")
    await expect(page.locator("tr[id^='j-'] td.name > a")).to_have_text(["list-a", "list-c"])


async def test_actions_of_a_row_appear_on_hover_and_on_focus(empty_site: Site, page: Page) -> None:
    ids = await add_jobs(empty_site)
    await page.goto("/jobs?q=list-d")
    row = page.locator(f"#j-{ids['list-d']}")
    actions = row.locator(".revealed")
    await expect(actions).to_have_css("opacity", "0")
    await row.hover()
    await expect(actions).to_have_css("opacity", "1")
    await page.mouse.move(0, 0)
    await expect(actions).to_have_css("opacity", "0")
    await row.get_by_role("link", name="Pause").focus()
    await expect(actions).to_have_css("opacity", "1")
    await row.get_by_role("link", name="Pause").press("Enter")
    await expect(page.locator("dialog[open]")).to_contain_text("list-d")


async def test_density_and_views_are_kept_in_this_browser(empty_site: Site, page: Page) -> None:
    ids = await add_jobs(empty_site)
    await page.goto("/jobs")
    row = page.locator(f"#j-{ids['list-b']}")
    before = await row.evaluate("row => row.getBoundingClientRect().height")
    await page.get_by_role("button", name="Compact rows").click()
    await page.reload()
    await expect(page.get_by_role("button", name="Compact rows")).to_have_attribute("aria-pressed", "true")
    assert await row.evaluate("row => row.getBoundingClientRect().height") < before
    await expect(page.get_by_role("button", name="Save view")).to_be_hidden()
    await page.get_by_label("Group by").select_option("prefix")
    await page.wait_for_url(re.compile("group=prefix"))
    await expect(page.locator("tr.cluster", has_text="list")).to_be_visible()
    await page.get_by_role("button", name="Save view").click()
    await page.get_by_label("Name of this view").fill("By prefix")
    await page.get_by_label("Name of this view").press("Enter")
    await page.goto("/jobs")
    await page.get_by_role("link", name="By prefix", exact=True).click()
    await page.wait_for_url(re.compile("group=prefix"))
    await expect(page.get_by_role("link", name="By prefix", exact=True)).to_have_attribute("aria-current", "page")
    await page.get_by_role("button", name="Remove the view By prefix").click()
    await page.reload()
    await expect(page.get_by_role("link", name="By prefix", exact=True)).to_have_count(0)

"""Without script everything can still be done: signed in, a job made, run, read, paused."""

from __future__ import annotations

import re

from playwright.async_api import expect

from tests.browser.conftest import Site


async def test_everything_works_without_script(empty_site: Site) -> None:
    async with empty_site.visitor(java_script_enabled=False) as (context, _):
        page = await context.new_page()
        await page.goto("/new")
        await page.locator("main [name=job]").fill("plain")
        await page.locator("main [name=command]").fill("echo it works without script")
        await page.locator("main [name=expression]").fill("every 1h")
        await page.get_by_role("button", name="Review").first.click()
        await expect(page.locator("#explained .sentence")).to_have_text("Every hour")
        await page.get_by_role("button", name="Create job").first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("plain")
        await page.get_by_role("button", name="Run now").click()
        await page.wait_for_url(re.compile("/executions/"))
        async with empty_site.running.client() as client:
            await client.wait(page.url.rsplit("/", 1)[1], timeout_s=60)
        await page.reload()
        await expect(page.locator("#head .state").first).to_contain_text("succeeded")
        await expect(page.locator("#log")).to_have_text("it works without script")
        await expect(page.get_by_text("Times in UTC")).to_be_visible()
        # The question before a pause is a page of its own.
        await page.goto("/jobs/plain")
        await page.get_by_role("link", name="Pause").click()
        await page.locator("main").get_by_role("textbox").first.fill("for the night")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator(".title .state")).to_contain_text("paused")
        await expect(page.locator("main")).to_contain_text("Paused: for the night")

"""Forms as people fill them: wrong at first, right in the end, for one job or all that match, or from a terminal."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Site

PROGRAMS = Path(sys.executable).parent


async def in_a_terminal(site: Site, command: str) -> str:
    """Types a line into a shell, as somebody does who copied it from a page."""
    environment = {
        "PATH": f"{PROGRAMS}:/usr/bin:/bin",
        "MAINSPRING_URL": site.url,
        "MAINSPRING_TOKEN": site.running.token,
    }
    process = await asyncio.create_subprocess_shell(
        command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    return told.decode()


async def test_what_is_wrong_is_said_where_it_is_wrong(page: Page) -> None:
    await page.goto("/new")
    await page.locator("main [name=job]").fill("no spaces allowed")
    await page.locator("main [name=command]").fill("echo hi")
    await page.locator("main [name=expression]").fill("61 * * * *")
    await page.get_by_role("button", name="Create job").first.click()
    # What was typed is still there; the summary has the focus, and leads to the fields.
    summary = page.locator("main [role=alert]").first
    await expect(summary).to_be_focused()
    await expect(summary).to_contain_text("2 fields have errors")
    name, schedule = page.locator("main [name=job]"), page.locator("main [name=expression]")
    await expect(name).to_have_value("no spaces allowed")
    for field in (name, schedule):
        await expect(field).to_have_attribute("aria-invalid", "true")
    described = (await name.get_attribute("aria-describedby") or "").split()
    await expect(page.locator(f"#{described[0]}")).to_contain_text("name")
    await expect(page.locator("#explained").get_by_role("alert")).to_contain_text("61 * * * *")
    await summary.get_by_role("link", name="expression").click()
    await expect(schedule).to_be_in_viewport()
    await name.fill("mended")
    await schedule.fill("1 * * * *")
    await page.get_by_role("button", name="Create job").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("mended")


async def test_a_copied_command_makes_the_same_job(empty_site: Site, page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/new")
    await page.locator("main [name=job]").fill("from-form")
    await page.locator("main [name=command]").fill("sh -c 'echo \"it is $1\"; exit 0' sh {{fire_at}}")
    await page.locator("main [name=expression]").fill("0 2 * * MON-FRI")
    await page.locator("main [name=zone]").fill("Europe/Berlin")
    await page.get_by_role("button", name="Review").first.click()
    await page.locator("main").get_by_text("Command line").click()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    command = str(await page.evaluate("() => navigator.clipboard.readText()"))
    assert command == await page.locator("#as-command").inner_text()
    await page.get_by_role("button", name="Create job").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("from-form")
    await in_a_terminal(empty_site, command.replace("from-form", "from-terminal"))
    async with empty_site.running.client() as client:
        made = [(await client.job(name)).spec for name in ("from-form", "from-terminal")]
    assert made[0].task == made[1].task and made[0].schedule == made[1].schedule and made[0].retries == made[1].retries
    # A question asked before something is done has its command too.
    await page.goto("/jobs/from-form/pause")
    await page.locator("main").get_by_text("Command line").click()
    await in_a_terminal(empty_site, await page.locator("#as-command").inner_text())
    await page.goto("/jobs/from-form")
    await expect(page.locator(".title .state")).to_contain_text("paused")


async def test_all_that_match_are_paused_with_a_reason(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        for name in ("many-a", "many-b", "many-c", "other"):
            await client.create_job({"name": name, "task": {"kind": "noop"}, "schedule": {"every": "1h"}})
    await page.goto("/jobs?q=many-")
    await page.get_by_role("link", name="Bulk actions").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("3 jobs match")
    await page.get_by_text("Pause", exact=True).click()
    await page.get_by_label("Reason").fill("the disk is full")
    await page.get_by_role("button", name="Apply to all 3 jobs").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("3 jobs done")
    await page.get_by_role("link", name="Back to the list").click()
    await expect(page.locator("tbody tr").filter(has_text="paused")).to_have_count(3)
    async with empty_site.running.client() as client:
        jobs = {name: await client.job(name) for name in ("many-a", "many-b", "many-c", "other")}
    assert {name: job.pause_reason for name, job in jobs.items() if job.state == "paused"} == dict.fromkeys(
        ("many-a", "many-b", "many-c"), "the disk is full"
    )


async def test_a_schedule_is_explained_while_it_is_typed(page: Page) -> None:
    await page.goto("/playground")
    schedule = page.get_by_label("Schedule")
    await expect(schedule).to_be_focused()
    # The example is selected: what is typed replaces it.
    await page.wait_for_function("box => box.selectionEnd > 0", arg=await schedule.element_handle())
    await page.keyboard.type("0 9 * * MON", delay=20)
    explained = page.locator("#explained")
    await expect(explained.locator(".sentence")).to_have_text("At 09:00 on Monday")
    await expect(explained.locator("tbody tr")).to_have_count(10)
    await expect(page).to_have_url(re.compile(r"expression=0\+9\+"))
    await page.get_by_label("Time zone", exact=True).fill("Asia/Tokyo")
    await expect(explained.locator("tbody tr").first).to_contain_text("09:00:00 JST")
    # A slip is pointed at, and nothing of the answer before it stays.
    await schedule.fill("0 25 * * MON")
    await expect(explained.get_by_role("alert")).to_contain_text("25")
    await expect(explained.locator("tbody tr")).to_have_count(0)
    await page.get_by_role("link", name="every 10m").click()
    await expect(explained.locator(".sentence")).to_have_text("Every 10 minutes")
    # From here to a job, with the schedule already filled in.
    await page.get_by_role("link", name="Create a job with this schedule").click()
    await expect(page.locator("main [name=expression]")).to_have_value("every 10m")


async def test_what_is_typed_before_the_script_arrives_is_previewed(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        await client.create_job({"name": "typed-early", "task": {"kind": "shell", "argv": ["true"]}})
    typed = asyncio.Event()

    async def late(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    await page.route("**/static/preview.js*", late)
    await page.goto("/jobs/typed-early/schedule", wait_until="commit")
    await page.get_by_label("Schedule", exact=True).fill("0 3 * * SUN")
    typed.set()
    await expect(page.locator("#proposed .sentence")).to_have_text("At 03:00 on Sunday")

"""A new user's first five minutes, and a worker that dies before their eyes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Site
from tests.support.processes import until_async

TICKS = "for n in 1 2 3 4 5 6; do echo tick $n; sleep 0.3; done"


def link_of(site: Site) -> str:
    """The link that `mainspring dev` prints."""
    found = re.search(r"UI (http\S+)", site.running.text())
    assert found is not None
    return found[1]


async def add(page: Page, name: str, command: str, schedule: str = "") -> None:
    await page.goto("/new")
    await page.locator("main [name=job]").fill(name)
    await page.locator("main [name=command]").fill(command)
    await page.locator("main [name=shell]").check()
    await page.locator("main [name=expression]").fill(schedule)
    retries = page.locator("main [name=retries]")
    if await retries.is_visible():
        await retries.fill("0")
    await page.get_by_role("button", name="Create job").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)


async def press(page: Page, word: str, state: str) -> None:
    """A button of the page, until it has the state; if it asks first, that is confirmed."""
    exactly = re.compile(rf"^\s*{word}…?\s*$")
    await page.locator("main .title").locator("button, summary, a").filter(has_text=exactly).first.click()
    asked = page.locator("dialog[open] form button, details[open] form button").filter(has_text=re.compile(rf"^{word}"))
    done = page.locator("main .title .state").filter(has_text=state)
    await expect(asked.or_(done).first).to_be_visible()
    if await asked.count():
        await asked.first.click()
    await expect(done).to_be_visible()


def line_of(page: Page, job: str, state: str) -> Locator:
    return page.locator("[data-feed] tr").filter(has_text=job).filter(has_text=state).first


async def mark(page: Page) -> None:
    """A page that is loaded again forgets this."""
    await page.evaluate("() => { window.mainspringTest = 1; }")


async def is_the_same(page: Page) -> bool:
    return bool(await page.evaluate("() => window.mainspringTest === 1"))


async def test_the_first_five_minutes(empty_site: Site, page: Page, tmp_path: Path) -> None:
    await page.context.clear_cookies()
    await page.goto(link_of(empty_site))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Nothing is scheduled yet")

    # A job of their own, and its green line without a reload.
    await add(page, "hello", "echo hello from here", "every 2s")
    await page.goto("/")
    await mark(page)
    await expect(line_of(page, "hello", "succeeded")).to_be_visible()
    assert await is_the_same(page)
    await line_of(page, "hello", "succeeded").get_by_role("link").first.click()
    await expect(page.locator("main").get_by_text("hello from here").first).to_be_visible()

    # Held, and on again.
    await page.goto("/jobs/hello")
    await press(page, "Pause", "paused")
    await press(page, "Resume", "active")

    # Run by hand, its output followed as it is written.
    await add(page, "talks", TICKS)
    await page.get_by_role("button", name="Run now").first.click()
    await page.wait_for_url(re.compile(r"/executions/"))
    await mark(page)
    await expect(page.locator("main").get_by_text("tick 6").first).to_be_visible()
    await expect(page.locator("#head .state").first).to_contain_text("succeeded")
    assert await is_the_same(page)

    # Broken, seen, mended, replayed.
    mended = tmp_path / "mended"
    await add(page, "breaks", f"test -e {mended}")
    await page.get_by_role("button", name="Run now").first.click()
    await page.wait_for_url(re.compile(r"/executions/"))
    await expect(page.locator("#head .state").first).to_contain_text(re.compile("failed|retry"))
    async with empty_site.running.client() as client:
        (failed, *_) = (await client.history("breaks", limit=1)).items
        await client.wait(failed.execution_id)
    await page.goto("/failures")
    await page.locator(".issues li").get_by_role("link", name="breaks", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("breaks")
    mended.touch()
    await page.get_by_role("button", name="Replay", exact=True).click()
    async with empty_site.running.client() as client:

        async def resolved() -> bool:
            return (await client.dead_letter(failed.execution_id)).state == "resolved"

        await until_async("the replay", resolved, within_s=60)
    await page.goto(f"/failures/{failed.execution_id}")
    await expect(page.locator("main")).to_contain_text("Resolved by")


async def test_a_worker_killed_before_its_open_page(empty_site: Site, page: Page) -> None:
    running = empty_site.running
    async with running.client() as client:
        await client.create_job(
            {
                "name": "sleeper",
                "task": {"kind": "shell", "argv": ["sleep", "600"]},
                "retries": {"max": 3},
            }
        )
        execution = (await client.trigger("sleeper")).execution_id
        (worker, *_) = [w for w in (await client.workers()).items if w.state in ("idle", "busy")]
        await page.goto(f"/workers/{worker.worker_id}")
        await mark(page)
        link = page.locator(f'#worker a[href="/executions/{execution}"]')
        await expect(link.first).to_be_visible()
        pid = running.child("mainspring.cli.main worker")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        # The session is lost, its execution given back; another life of the worker takes it.
        await expect(page.get_by_role("heading", name="Lost attempts")).to_be_visible()
        lost = page.locator("#worker tr").filter(has_text="sleeper").filter(has_text=re.compile("requeued|again|retr"))
        await expect(lost.first).to_be_visible()
        assert await is_the_same(page)
        await client.cancel(execution)

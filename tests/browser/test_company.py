"""The shop of examples/company: its scene, and how a person finds out what is wrong in it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import Site
from tests.support.company import company

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shop(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with company(tmp_path_factory.mktemp("shop")) as running:
        yield Site(running, chromium)


async def test_one_command_sets_the_scene(shop: Site) -> None:
    async with shop.running.client() as client:
        jobs = {job.name: job for job in (await client.jobs(limit=500)).items}
        workers = {worker.name: worker.state for worker in (await client.workers()).items}
        queues = {queue.name: queue for queue in (await client.queues()).items}
        waiting = [run.workflow for run in (await client.runs(states=["running"])).items]
    plain = [job for job in jobs.values() if job.spec.kind != "workflow"]
    assert len(plain) >= 50 and len(jobs) - len(plain) == 5
    assert len({job.spec.metadata["owner"] for job in plain if job.spec.metadata}) == 7
    assert len(workers) == 5 and workers["spare-1"] in ("suspect", "lost", "offline")
    assert queues["gpu"].workers == 0 and queues["gpu"].depth >= 2
    assert {"shop-release", "finance-refund"} <= set(waiting)
    assert jobs["mail-digest"].state == "paused"
    assert all(e.state == "failed" for e in jobs["finance-ledger-export"].last[:5])
    assert any(deadline.state == "missed" for deadline in jobs["data-partner-export"].deadlines)


async def test_the_start_page_and_the_list_agree_on_late_jobs(shop: Site) -> None:
    """The number of the verdict is that of the tab, and each row of the start page is in its list."""
    async with shop.visitor(viewport={"width": 1440, "height": 900}) as (context, _):
        page = await context.new_page()
        await page.goto("/")
        said = page.locator("h1.verdict").get_by_role("link", name=re.compile(r"^\d+ jobs? late$"))
        await expect(said).to_have_text("3 jobs late")  # two of them 10 s after they have been queued
        number = (await said.inner_text()).partition(" ")[0]
        rows = page.locator("#needs-you li").filter(has=page.get_by_text("Late", exact=True))
        named = await rows.locator("a.name").all_inner_texts()
        await page.goto("/jobs?tab=late")
        await expect(page.get_by_role("link", name=f"Late {number}", exact=True)).to_be_visible()
        listed = set(await page.locator("tr[id^='j-'] td.name > a").all_inner_texts())
        assert len(listed) == int(number) and set(named) <= listed
        assert "data-partner-export" in named and "data-partner-export" in listed


SMALL = (
    "/jobs",
    "/jobs?tab=late",
    "/queues",
    "/workers",
    "/system",
    "/workflows/data-nightly",
    "/failures",
    "/calendar?view=agenda",
    "/",
)
CUT = """() => [...document.querySelectorAll(".scroll, td.num")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map((e) => `${e.localName}: ${e.innerText.slice(0, 60)}`)"""


async def test_no_column_is_cut_on_a_phone(shop: Site) -> None:
    """Next fires, ages and numbers are whole; names may end in an ellipsis."""
    async with shop.visitor(viewport={"width": 390, "height": 844}) as (context, _):
        page = await context.new_page()
        for path in SMALL:
            await page.goto(path)
            assert await page.evaluate(CUT) == [], path
        await page.goto("/jobs")
        fires = page.locator("tr[id^='j-'] time[data-until]")
        assert await fires.count() > 30 and await fires.first.is_visible()


async def test_a_queue_without_workers_is_understood_within_four_clicks(shop: Site) -> None:
    """From Now to the reason and the command that solves it."""
    async with shop.visitor(viewport={"width": 1440, "height": 900}) as (context, _):
        page = await context.new_page()
        await page.goto("/")
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Queues").click()
        row = page.locator("#q-gpu")
        await expect(row).to_contain_text("No workers")
        await row.get_by_role("link", name="No workers").click()
        await expect(page.get_by_role("main")).to_contain_text("mainspring worker -q gpu")

"""The shop of examples/company: its scene, and how a person finds out what is wrong in it."""

from __future__ import annotations

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

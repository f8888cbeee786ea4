"""Real people's view: a browser in front of real processes. A test fails if the browser complained of anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.support.browser_scene import Scene, filled
from tests.support.chromium import Watch, launched, program
from tests.support.processes import Dev, dev

PATIENCE_MS = 60_000
"""How long something may take before it counts as not coming: other tests keep the machine busy too."""
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if program() is None:
                item.add_marker(pytest.mark.skip(reason="no browser; install chromium (`make install-system`)"))


@dataclass
class Site:
    """A running `mainspring dev` and a browser to look at it with."""

    running: Dev
    browser: Browser

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.running.port}"

    @asynccontextmanager
    async def visitor(self, *, token: str = "", **options: Any) -> AsyncIterator[tuple[BrowserContext, Watch]]:
        """Somebody signed in by the form, with cookies of their own. Complaints fail the test at the end."""
        context = await self.browser.new_context(base_url=self.url, **options)
        context.set_default_timeout(PATIENCE_MS)
        watch = Watch(self.url)
        try:
            page = await context.new_page()
            await page.goto("/login")
            await page.get_by_label("Token").fill(token or self.running.token)
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url(self.url + "/")
            await page.close()
            await watch.over(context)
            yield context, watch
        finally:
            await context.close()
        assert not watch.complaints, "\n".join(watch.complaints)


@pytest.fixture(scope="session")
async def chromium(anyio_backend: object) -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
async def empty_site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server nobody has used yet. It may tell channels on this machine."""
    async with dev(tmp_path_factory.mktemp("empty"), "--allow-net", "127.0.0.1/32") as running:
        yield Site(running, chromium)


@pytest.fixture(scope="module")
async def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Site, Scene]]:
    """A server with something on every page."""
    async with dev(tmp_path_factory.mktemp("site")) as running:
        async with running.client() as client:
            scene = await filled(client)
        yield Site(running, chromium), scene


@pytest.fixture
async def page(empty_site: Site) -> AsyncIterator[Page]:
    """A signed-in page of an unused server, wide and light."""
    async with empty_site.visitor(viewport={"width": 1280, "height": 800}) as (context, _):
        yield await context.new_page()

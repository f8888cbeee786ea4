"""Every page of the route table in a real browser: nothing to complain of, for eyes, keyboards and screen readers.

Two looks by default; `BROWSER_WALK=long` takes all four widths in light and dark, and the empty pages too.
"""

from __future__ import annotations

import os
from importlib import resources
from typing import Any, cast

import pytest
from playwright.async_api import BrowserContext, Page

from tests.browser.conftest import Site
from tests.support.browser_pages import QUERIES, paths
from tests.support.browser_scene import Scene

LONG = os.environ.get("BROWSER_WALK") == "long"
WIDTHS = (320, 768, 1280, 1920)
LOOKS = [(w, s) for w in WIDTHS for s in ("light", "dark")] if LONG else [(1280, "light"), (320, "dark")]
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
RUN_AXE = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
  return found.violations.filter((v) => ["serious", "critical"].includes(v.impact))
    .map((v) => `${v.id}: ${v.help}: ` + v.nodes.slice(0, 4).map((n) => n.target.join(" ") + " " +
      n.any.map((a) => a.message).join("; ")).join(" | "));
}"""
TOO_WIDE = """() => document.documentElement.scrollWidth > innerWidth + 1
  ? [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1
      && !e.closest(".scroll, pre, .log, nav, .wide-picture")).slice(0, 5).map((e) => e.outerHTML.slice(0, 120)) : []"""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
"""A box that has begun to scroll is told so after the next frame, and can be reached by keyboard from then on."""


async def test_every_page_is_sound(site: tuple[Site, Scene]) -> None:
    here, scene = site
    problems: list[str] = []
    async with here.visitor() as (context, watch):
        page = await context.new_page()
        for route in paths():
            address = scene.path(route) + QUERIES.get(route, "")
            if await is_page(context, address, problems):
                problems += await walk(page, address)
                problems += [f"{address}: {complaint}" for complaint in watch.complaints]
                watch.complaints.clear()
    assert not problems, "\n".join(problems)


@pytest.mark.skipif(not LONG, reason="the long walk only")
async def test_every_page_of_an_unused_server_is_sound(empty_site: Site) -> None:
    problems: list[str] = []
    async with empty_site.visitor() as (context, _):
        page = await context.new_page()
        for route in [r for r in paths() if "{" not in r and r != "/failures/plan"]:
            if await is_page(context, route, problems):
                problems += await walk(page, route)
    assert not problems, "\n".join(problems)


async def test_the_login_is_sound(site: tuple[Site, Scene]) -> None:
    context = await site[0].browser.new_context(base_url=site[0].url)
    page = await context.new_page()
    problems = await walk(page, "/login")
    await context.close()
    assert not problems, "\n".join(problems)


async def is_page(context: BrowserContext, address: str, problems: list[str]) -> bool:
    answer = await context.request.get(address, headers={"accept": "text/html"})
    if answer.status != 200:
        problems.append(f"{address}: answered {answer.status}")
    return answer.status == 200 and answer.headers["content-type"].startswith("text/html")


async def walk(page: Page, address: str) -> list[str]:
    """What is wrong with a page, at every width and in both schemes."""
    await page.goto(address, wait_until="load")
    await page.evaluate(AXE)
    problems: list[str] = []
    for width, scheme in LOOKS:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=cast(Any, scheme), reduced_motion="reduce")
        await page.evaluate(DRAWN)
        where = f"{address} at {width} {scheme}"
        problems += [f"{where}: {found}" for found in await page.evaluate(RUN_AXE)]
        problems += [f"{where}: wider than the window: {found}" for found in await page.evaluate(TOO_WIDE)]
    return problems

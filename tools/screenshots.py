"""Take screenshots of every page for the documentation: empty and with data, light and dark.

Run as `make screenshots`. It starts an empty server and the shop of examples/company, and writes PNGs, reduced to a
palette, into docs/images. File names
and sizes are fixed; times are those of the day it runs.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path
from typing import Any, cast

from PIL import Image
from playwright.async_api import Page

from tests.browser.conftest import Site
from tests.support.browser_pages import QUERIES, paths
from tests.support.chromium import launched, program
from tests.support.company import company, scene_of
from tests.support.processes import dev
from tools.tree import ROOT

FOLDER = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
COLORS = 256
SHOWN_EMPTY = ("/", "/jobs", "/executions", "/workflows", "/failures", "/queues", "/workers", "/channels", "/settings")
LEFT_OUT = ("/search", "/failures/plan", "/jobs/{ref}/rollback")
SETTLED = """() => !document.body.dataset.stream || document.getElementById("live").hidden
  || document.getElementById("live-word").textContent === 'Live'"""


async def main() -> None:
    if program() is None:
        raise SystemExit("Chromium is not installed; run `make install-system`")
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    async with launched() as browser:
        with tempfile.TemporaryDirectory(prefix="mainspring-screenshots-") as folder:
            async with dev(Path(folder)) as running:
                await _take(Site(running, browser), {name_of(path) + "-empty": path for path in SHOWN_EMPTY})
        with tempfile.TemporaryDirectory(prefix="mainspring-screenshots-") as folder:
            async with company(Path(folder)) as shop:
                async with shop.client() as client:
                    scene = await scene_of(client)
                wanted = [route for route in paths() if route not in LEFT_OUT]
                await _take(Site(shop, browser), {name_of(r): scene.path(r) + QUERIES.get(r, "") for r in wanted})
    total = sum(file.stat().st_size for file in FOLDER.glob("*.png"))
    print(f"{len(list(FOLDER.glob('*.png')))} screenshots, {total / 1e6:.1f} MB, in docs/images")


async def _take(site: Site, wanted: dict[str, str]) -> None:
    async with site.visitor(viewport=SIZE, timezone_id="Europe/Berlin", reduced_motion="reduce") as (context, _):
        page = await context.new_page()
        for name, address in wanted.items():
            answer = await context.request.get(address, headers={"accept": "text/html"})
            if answer.status != 200 or not answer.headers["content-type"].startswith("text/html"):
                continue
            await page.goto(address)
            await page.wait_for_function(SETTLED)
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=cast(Any, scheme))
                (FOLDER / f"{name}-{scheme}.png").write_bytes(await _screenshot(page))


async def _screenshot(page: Page) -> bytes:
    image = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    small = io.BytesIO()
    image.quantize(COLORS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def name_of(route: str) -> str:
    """Return the file name of a route: `/jobs/{ref}/ledger` is job-ledger, `/` is now."""
    words = [word for word in route.replace(":", "-").split("/") if word]
    if len(words) > 1 and words[1] == "{ref}":
        words = [words[0].removesuffix("s"), *words[2:]]
    return "-".join(words) or "now"


if __name__ == "__main__":
    asyncio.run(main())

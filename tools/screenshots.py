"""Take screenshots of every page for the documentation: empty and with data, light and dark, and some on a phone.

Run as `make screenshots`. It starts an empty server and the shop of examples/company, and writes PNGs, reduced to a
palette, into docs/images, or into the folder that is given. File names and sizes are fixed; times are those of the day
it runs.
"""

from __future__ import annotations

import asyncio
import io
import sys
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
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
COLORS = 96
SCHEMES = ("light", "dark")
SHOWN_EMPTY = ("/", "/jobs", "/executions", "/workflows", "/failures", "/queues", "/workers")
ON_A_PHONE = ("/", "/jobs", "/jobs/{ref}", "/executions/{ref}", "/runs/{ref}", "/calendar", "/failures", "/queues")
MORE = {"calendar-agenda": "/calendar?view=agenda"}
STEP = "?panel=toys"
"""Opens the panel of the step that failed."""
LEFT_OUT = (
    "/search", "/failures/plan", "/jobs/{ref}/rollback", "/jobs/{ref}/resume", "/jobs/{ref}/delete",
    "/executions/{ref}/cancel", "/runs/{ref}/cancel", "/runs/{ref}/rerun", "/queues/{ref}/pause",
    "/workers/{ref}/drain", "/api/docs", "/api/docs/{ref}", "/settings/tenants", "/new.yaml",
)  # fmt: skip
"""Pages without data of the shop, and confirmations: one of them is enough."""
SETTLED = """() => !document.body.dataset.stream || document.getElementById("live").hidden
  || document.getElementById("live-word").textContent === 'Live'"""


async def main(into: Path) -> None:
    if program() is None:
        raise SystemExit("Chromium is not installed; run `make install-system`")
    _clear(into)
    async with launched() as browser:
        with tempfile.TemporaryDirectory(prefix="shop-") as folder:
            async with dev(Path(folder)) as running:
                empty = {name_of(path) + "-empty": path for path in SHOWN_EMPTY}
                await _take(Site(running, browser), empty, into)
        with tempfile.TemporaryDirectory(prefix="shop-") as folder:
            async with company(Path(folder)) as shop:
                async with shop.client() as client:
                    scene = await scene_of(client)
                address = {r: scene.path(r) + QUERIES.get(r, "") for r in paths() if r not in LEFT_OUT}
                more = MORE | {"run-step": address["/runs/{ref}"] + STEP}
                pictures = {name_of(r): a for r, a in address.items()} | more
                pictures["now"] = pictures.pop("now")  # last: executions are late some seconds after they are queued
                await _take(Site(shop, browser), pictures, into)
                small = {name_of(r) + "-phone": address[r] for r in ON_A_PHONE}
                small |= {name + "-phone": path for name, path in MORE.items()}
                await _take(Site(shop, browser), small, into, PHONE, SCHEMES[:1])
    print(_summary(into))


def _clear(into: Path) -> None:
    into.mkdir(exist_ok=True)
    for old in into.glob("*.png"):
        old.unlink()


def _summary(into: Path) -> str:
    sizes = [file.stat().st_size for file in into.glob("*.png")]
    return f"{len(sizes)} screenshots, {sum(sizes) / 1e6:.1f} MB, in {into}"


async def _take(
    site: Site, wanted: dict[str, str], into: Path, size: dict[str, int] = DESK, schemes: tuple[str, ...] = SCHEMES
) -> None:
    async with site.visitor(viewport=size, timezone_id="Europe/Berlin", reduced_motion="reduce") as (context, _):
        page = await context.new_page()
        for name, address in wanted.items():
            answer = await context.request.get(address, headers={"accept": "text/html"})
            if answer.status != 200 or not answer.headers["content-type"].startswith("text/html"):
                continue
            await page.goto(address)
            await page.wait_for_function(SETTLED)
            for scheme in schemes:
                await page.emulate_media(color_scheme=cast(Any, scheme))
                (into / f"{name}-{scheme}.png").write_bytes(await _screenshot(page))


async def _screenshot(page: Page) -> bytes:
    image = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    small = io.BytesIO()
    reduced = image.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced.save(small, "PNG", optimize=True)
    return small.getvalue()


def name_of(route: str) -> str:
    """Return the file name of a route: `/jobs/{ref}/ledger` is job-ledger, `/` is now."""
    return route.replace(":", "-").replace("s/{ref}", "").strip("/").replace("/", "-") or "now"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))

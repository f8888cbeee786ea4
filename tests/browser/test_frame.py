"""What surrounds every page: the theme, the zone of its times, and everything that is done by keys."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from playwright.async_api import Page, expect

from tests.browser.conftest import Site

GROUND = "() => getComputedStyle(document.body).backgroundColor"
WHITE, BLACK = "rgb(255, 255, 255)", "rgb(14, 17, 20)"
BERLIN = {"cron": "30 6 4 7 *", "timezone": "Europe/Berlin"}


async def add(site: Site, *names: str, **more: object) -> None:
    async with site.running.client() as client:
        for name in names:
            await client.create_job({"name": name, "task": {"kind": "noop"}, **more})


async def test_a_theme_is_chosen_and_kept(page: Page) -> None:
    await page.emulate_media(color_scheme="light")
    await page.goto("/")
    theme = page.get_by_label("Theme")
    assert await page.evaluate(GROUND) == WHITE
    await theme.select_option("dark")
    assert await page.evaluate(GROUND) == BLACK
    await page.goto("/jobs")
    assert await page.evaluate(GROUND) == BLACK
    await expect(theme).to_have_value("dark")
    await theme.select_option("auto")
    assert await page.evaluate(GROUND) == WHITE
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(GROUND) == BLACK
    await page.reload()
    await expect(theme).to_have_value("auto")


async def test_times_are_those_of_the_chosen_zone(empty_site: Site) -> None:
    await add(empty_site, "zoned", schedule=BERLIN)
    async with empty_site.running.client() as client:
        execution = (await client.trigger("zoned")).execution_id
        created = (await client.job("zoned")).created_at
    async with empty_site.visitor(timezone_id="Asia/Tokyo") as (context, _):
        page = await context.new_page()
        await page.goto("/jobs/zoned")
        # Something long ago, so that the date is written too: the page of the job says when it was made.
        made = page.locator("dt", has_text="Created").locator("xpath=..").locator("time")
        shown = page.get_by_label("Display time zone")
        await expect(shown.locator("option").first).to_have_text("Asia/Tokyo")
        at = datetime.fromisoformat(await made.get_attribute("datetime") or "")
        assert abs((at - created).total_seconds()) < 1

        def clock(zone: str) -> re.Pattern[str]:
            there = at.astimezone(ZoneInfo(zone))
            return re.compile(rf"^({there.day} {there:%b} )?{there:%H:%M:%S}$")

        await expect(made).to_have_text(clock("Asia/Tokyo"))
        await shown.select_option("utc")
        await expect(made).to_have_text(clock("UTC"))
        # Kept on the next page; the job's own zone is beside the reader's.
        await page.goto(f"/executions/{execution}")
        await expect(shown).to_have_value("utc")
        await page.goto("/jobs/zoned")
        await shown.select_option("local")
        await expect(made).to_have_text(clock("Asia/Tokyo"))
        await expect(page.locator("#fires thead")).to_contain_text("Europe/Berlin")


async def test_everything_has_a_key(empty_site: Site, page: Page) -> None:
    await add(empty_site, "keys-a", "keys-b", "keys-c")
    await page.goto("/")
    await page.keyboard.press("?")
    keys = page.locator("#keys")
    await expect(keys).to_be_visible()
    await expect(keys).to_contain_text("Next or previous row")
    await page.keyboard.press("Escape")
    await expect(keys).to_be_hidden()
    # To a page, along its rows, and into one of them.
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await page.wait_for_url(re.compile("/jobs$"))
    await page.keyboard.press("/")
    await expect(page.locator("#q")).to_be_focused()
    await page.keyboard.type("keys-")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("q=keys-"))
    for key, focused in (("j", "keys-a"), ("j", "keys-b"), ("j", "keys-c"), ("k", "keys-b")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("link", name=focused)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("keys-b")
    # Where there is no list to filter, the search of everything; and letters typed into it are only letters.
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()
    await page.keyboard.type("keys-c")
    await expect(page.locator("#search")).to_have_value("keys-c")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("keys-c")


async def test_the_first_key_leads_past_the_menu(page: Page) -> None:
    await page.goto("/jobs")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()

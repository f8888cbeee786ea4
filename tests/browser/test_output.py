"""The output of programs as readers meet it: at its end, live, coloured, and searched further back than was loaded."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import PATIENCE_MS, Site

LINES = 40_000
LONG = (
    f"print('a needle at the start')\nfor n in range({LINES}):\n"
    "    print(f'line {n:06d} ' + 'hay ' * 15)\n    if n == 20_000: print('half a needle')\nprint('the very end')\n"
)
STAGED = (
    "import pathlib, sys, time\n"
    "for n in range(200): print('line', n)\n"
    "print('\\033[31mred\\033[0m <img src=x onerror=alert(1)> \\033]0;title\\007plain')\n"
    "for n in range(101): print(f'\\r{n} %', end='')\n"
    "print(flush=True)\n"
    "for step in ('first', 'second'):\n"
    "    while not pathlib.Path(sys.argv[1], step).exists(): time.sleep(0.05)\n"
    "    print(step, 'was seen', flush=True)\n"
)
AT_END = """() => {
  const log = document.getElementById("log");
  return log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
}"""
HERE_IS_SEEN = """() => {
  const [range] = [...CSS.highlights.get("here") ?? []];
  if (!range) return "";
  const [box, frame] = [range.getBoundingClientRect(), document.getElementById("log").getBoundingClientRect()];
  return box.top >= frame.top && box.bottom <= frame.bottom ? range.toString() : "out of sight";
}"""


async def started(site: Site, name: str, *argv: str, wait: bool = False) -> UUID:
    async with site.running.client() as client:
        await client.create_job(
            {
                "name": name,
                "task": {"kind": "shell", "argv": list(argv)},
                "retries": {"max": 0},
            }
        )
        execution = (await client.trigger(name)).execution_id
        if wait:
            ended = await client.wait(execution, timeout_s=PATIENCE_MS / 1000)
            assert ended.state == "succeeded", ended.error
        return execution


async def look_for(page: Page, words: str) -> Locator:
    await page.get_by_label("Search the log").fill(words)
    return page.locator("#log-matches")


async def test_words_are_found_far_before_what_was_loaded(empty_site: Site, page: Page) -> None:
    execution = await started(empty_site, "long", "python3", "-c", LONG, wait=True)
    await page.goto(f"/executions/{execution}")
    await expect(page.locator("#log")).to_contain_text("the very end")
    assert await page.evaluate(AT_END)
    # Not all of it came with the page: what is sought is brought, range by range.
    sought = await look_for(page, "a needle")
    await expect(sought).to_have_text("no match yet: Enter searches older output")
    await page.keyboard.press("Enter")
    await expect(sought).to_have_text("1 of 1")
    assert await page.evaluate(HERE_IS_SEEN) == "a needle"
    await expect(page.locator("#log")).to_contain_text("half a needle")
    await page.keyboard.press("Enter")
    await expect(sought).to_have_text("1 of 2")
    assert await page.evaluate(HERE_IS_SEEN) == "a needle"
    # Now all of it is here: every line once, in order.
    await page.locator("#log .log-fold summary").click()
    text = await page.locator("#log").inner_text()
    lines = [line for line in text.splitlines() if not line.startswith("Hide ")]
    assert lines[0] == "a needle at the start" and lines[-1] == "the very end"
    assert [line for line in lines if line.startswith("line ")] == [
        f"line {n:06d} " + "hay " * 15 for n in range(LINES)
    ]
    await look_for(page, "no such words")
    await page.keyboard.press("Enter")
    await expect(sought).to_have_text("no match")


async def test_output_is_followed_coloured_and_harmless(empty_site: Site, page: Page, tmp_path: Path) -> None:
    execution = await started(empty_site, "staged", "python3", "-c", STAGED, str(tmp_path))
    await page.goto(f"/executions/{execution}")
    log, to_end = page.locator("#log"), page.get_by_role("button", name="Follow")
    await expect(log.locator("i.c-red")).to_have_text("red")
    await expect(log).to_contain_text("<img src=x onerror=alert(1)> plain")
    assert await log.locator("img").count() == 0
    # A hundred states of one line are one line that says so.
    await expect(log).to_contain_text("100 %↻100")
    await expect(log).not_to_contain_text("99 %")
    # At its end it stays at its end; who reads further up is left in peace.
    (tmp_path / "first").touch()
    await expect(log).to_contain_text("first was seen")
    await page.wait_for_function(AT_END)
    await expect(to_end).to_be_hidden()
    await log.evaluate("log => { log.scrollTop = 0; }")
    await expect(to_end).to_be_visible()
    (tmp_path / "second").touch()
    await expect(log).to_contain_text("second was seen")
    assert await log.evaluate("log => log.scrollTop") == 0
    await to_end.click()
    await page.wait_for_function(AT_END)
    await expect(page.locator("#head .state").first).to_contain_text("succeeded")

"""Edited beside its effect: workflows with their graph and problems, alert rules in their row; and long logs folded."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from playwright.async_api import Page, expect

from mainspring.client import AsyncClient
from tests.browser.conftest import Site
from tests.browser.test_output import started
from tests.support.processes import until_async

TEXT = """\
kind: Workflow
metadata: {name: previewed}
spec:
  steps:
    first:
      shell: [echo, hi]
    second:
      shell: [echo, ho]
      needs: [first]
"""
GROUPS = (
    "import pathlib, sys, time\n"
    "print('::group::Install')\nfor n in range(3): print('package', n)\nprint('::endgroup::')\n"
    "for n in range(1000): print('case', n)\n"
    "print('::group::Upload', flush=True)\n"
    "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
    "print('uploaded')\nprint('::endgroup::')\nprint('the very end', flush=True)\n"
)


async def test_the_graph_and_the_problems_of_a_workflow_follow_the_text(empty_site: Site, page: Page) -> None:
    await page.goto("/workflows/new", wait_until="load")
    text, problems, graph = page.locator("#f-text"), page.locator("#preview-problems"), page.locator("#preview-body")
    await expect(problems).to_contain_text("its graph appears here")
    await text.fill(TEXT)
    await expect(problems).to_contain_text("Valid: 2 steps")
    await expect(graph.locator(".node")).to_have_count(2)
    await text.fill(TEXT.replace("[first]", "[frist]"))
    await expect(problems).to_contain_text("line 9, column 15: unknown step 'frist'")
    await expect(page.locator(".marks .says")).to_contain_text("unknown step 'frist'")
    await expect(graph.locator(".node")).to_have_count(2)  # the last graph that was valid stays
    # The link of a problem puts the cursor there.
    await problems.get_by_role("link", name="line 9, column 15").click()
    assert await text.evaluate("area => area.value.slice(area.selectionStart, area.selectionStart + 5)") == "frist"
    await text.fill(TEXT)
    await expect(problems).to_contain_text("Valid: 2 steps")
    await expect(page.locator(".marks .says")).to_have_count(0)
    # Reviewed, the page has one graph, and it is beside the text.
    async with page.expect_navigation(wait_until="load"):
        await page.get_by_role("button", name="Review").click()
    await expect(page.locator("#review-title")).to_be_visible()
    await expect(graph.locator(".node")).to_have_count(2)
    await expect(page.locator("#picture")).to_have_count(1)
    async with page.expect_navigation(wait_until="load"):
        await page.get_by_role("button", name="Create previewed").click()
    await expect(page.locator("h1")).to_contain_text("previewed")


async def test_the_fires_and_the_problems_of_a_job_follow_the_text(empty_site: Site, page: Page) -> None:
    await page.goto("/new.yaml", wait_until="load")
    text, problems, body = page.locator("#f-text"), page.locator("#preview-problems"), page.locator("#preview-body")
    await expect(problems).to_contain_text("Valid: at 02:00 every day (Europe/Berlin)")
    await expect(body.locator("time")).to_have_count(5)
    right = await text.input_value()
    await text.fill(right.replace("0 2 * * *", "0 26 * * *"))
    await expect(page.locator(".marks .says")).to_contain_text("26")
    await expect(body.locator("time")).to_have_count(5)  # of the last text that was valid
    await text.fill(right.replace("0 2 * * *", "15 4 * * *"))
    await expect(problems).to_contain_text("Valid: at 04:15 every day")
    await text.press("Control+End")
    await text.press_sequentially("  prio")
    await expect(page.locator("#keys-known [role=option]").first).to_have_text("priority")


async def test_keys_are_completed_where_they_fit(empty_site: Site, page: Page) -> None:
    await page.goto("/workflows/new", wait_until="load")
    text, keys = page.locator("#f-text"), page.locator("#keys-known [role=option]")
    await expect(page.locator("#preview-problems")).to_contain_text("its graph appears here")
    await text.fill(TEXT)
    await text.press("Control+End")
    await text.press_sequentially("      ti")
    await expect(keys).to_have_text(["timeout"])
    await text.press("Enter")
    assert (await text.input_value()).endswith("      timeout: ")
    await text.press_sequentially("5m\n")
    await text.press("Control+Space")  # not inside a step: the keys of a manifest
    await expect(keys.first).to_have_text("kind")
    await text.press("Escape")
    await expect(page.locator("#keys-known")).to_be_hidden()
    await expect(page.locator("#preview-problems")).to_contain_text("Valid: 2 steps")


async def test_a_rule_is_edited_where_it_stands(empty_site: Site, page: Page) -> None:
    await page.goto("/alerts", wait_until="load")
    async with page.expect_navigation(wait_until="load"):
        await page.get_by_role("link", name="Edit clock_skewed").click()
    form = page.get_by_role("form", name="Edit the rule clock_skewed")
    await form.get_by_label("Threshold").fill("a lot")
    async with page.expect_navigation(wait_until="load"):
        await form.get_by_role("button", name="Save rule").click()
    await expect(page.locator("#f-threshold-error")).to_contain_text("'a lot' is not a number")
    await form.get_by_label("Threshold").fill("2.5")
    await form.get_by_label("For").fill("1m")
    async with page.expect_navigation(wait_until="load"):
        await form.get_by_role("button", name="Save rule").click()
    await expect(page.locator("#rule-clock_skewed")).to_contain_text("more than 2.5 s, for 60 s")


async def test_a_long_log_is_folded_grouped_and_shows_times(empty_site: Site, page: Page, tmp_path: Path) -> None:
    door = tmp_path / "door"
    execution = await started(empty_site, "grouped", "python3", "-c", GROUPS, str(door))
    log = page.locator("#log")
    async with empty_site.running.client() as client:
        await until_async("its output", lambda: _wrote(client, execution, "::group::Upload"), within_s=60)
    await page.goto(f"/executions/{execution}", wait_until="load")
    install, upload = log.locator(".log-group").first, log.locator(".log-group").last
    await expect(install).not_to_have_attribute("open", "")
    await expect(upload).to_have_attribute("data-open", "")
    fold = log.locator(".log-fold")
    await expect(fold.locator("summary")).to_contain_text("more lines")
    await expect(log.get_by_text("case 500", exact=False).first).not_to_be_visible()
    # What comes later goes into the open group, until its end.
    door.touch()
    await expect(log).to_contain_text("the very end")
    await expect(upload).to_contain_text("uploaded")
    await expect(upload).not_to_contain_text("the very end")
    await expect(upload).not_to_have_attribute("data-open", "")
    # A search opens what hides its matches.
    await page.get_by_label("Search the log").fill("package 2")
    await expect(page.locator("#log-matches")).to_have_text("1 of 1")
    await expect(install).to_have_attribute("open", "")
    await page.get_by_label("Search the log").fill("case 500")
    await expect(fold).to_have_attribute("open", "")
    # Timestamps are a choice that the browser remembers.
    times = page.get_by_role("button", name="Timestamps")
    await expect(log).not_to_have_class(re.compile("stamped"))
    await times.click()
    await expect(log).to_have_class(re.compile("stamped"))
    await expect(times).to_have_attribute("aria-pressed", "true")
    stamped = log.locator("[data-time]").first
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", await stamped.get_attribute("data-time") or "")
    await page.reload(wait_until="load")
    await expect(log).to_have_class(re.compile("stamped"))
    await times.click()
    await expect(log).not_to_have_class(re.compile("stamped"))


async def _wrote(client: AsyncClient, execution: UUID, text: str) -> bool:
    return any(text in chunk.text for chunk in (await client.logs(execution)).chunks)

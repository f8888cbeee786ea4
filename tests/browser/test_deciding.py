"""What needs a person: approvals, runs too large to draw in full, who is told, and who may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.channel import WebhookTarget
from mainspring.domain.errors import Forbidden, Unauthenticated
from mainspring.manifest import read_workflows
from tests.browser.conftest import Site
from tests.support.http_receiver import receiving, reply
from tests.support.processes import until_async

GATED = """
kind: Workflow
metadata: {name: gated}
spec:
  steps:
    build: {shell: [echo, built]}
    sign: {approval: {expires: 2d, message: "Is the build good?", self_approval: true}, needs: [build]}
    deploy: {shell: [echo, deployed], needs: [sign]}
"""
WIDE = 320
CHAIN = 14


def wide() -> str:
    steps = "\n".join(f"    part_{n}: {{task: {{kind: noop}}, needs: [split]}}" for n in range(WIDE))
    return f"kind: Workflow\nmetadata: {{name: wide}}\nspec:\n  steps:\n    split: {{task: {{kind: noop}}}}\n{steps}\n"


def chain(folder: Path) -> str:
    """One step after another; the last but one waits until it is told to go on."""
    steps = "\n".join(f"    s{n}: {{shell: ['true'], needs: {[f's{n - 1}'] if n else []}}}" for n in range(CHAIN - 2))
    wait = f"while ! test -e {folder}/go; do sleep 0.05; done"
    steps += f"\n    waits: {{shell: [sh, -c, '{wait}'], needs: [s{CHAIN - 3}]}}"
    steps += "\n    ends: {shell: ['true'], needs: [waits]}"
    return f"kind: Workflow\nmetadata: {{name: chain}}\nspec:\n  steps:\n{steps}\n"


async def begun(client: AsyncClient, text: str) -> wire.Run:
    (spec,) = read_workflows(text)
    await client.apply_workflow(spec)
    return await client.start_run(spec.name)


async def test_a_step_is_approved_in_its_page(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        run = await begun(client, GATED)
        await page.goto(f"/runs/{run.run_id}")
        row = page.locator("#step-sign")
        await row.get_by_role("link", name="Approve").click()
        dialog = page.locator("dialog[open]")
        await expect(dialog).to_contain_text("The steps that depend on it continue.")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await row.get_by_role("link", name="Approve").click()
        await dialog.get_by_role("textbox").fill("looked at it")
        await dialog.get_by_role("button", name="Approve sign").click()
        # The rest happens before their eyes.
        await expect(page.locator("#run-head .state")).to_contain_text("succeeded")
        await expect(page.locator("#step-deploy .state")).to_contain_text("succeeded")
        await expect(page.locator("#n-2.good")).to_be_visible()
        ended = await client.run(run.run_id)
    (sign,) = [step for step in ended.steps if step.name == "sign"]
    assert sign.state == "succeeded" and "looked at it" in (sign.reason or "")


async def test_a_large_graph_is_folded_and_opened(empty_site: Site, page: Page) -> None:
    async with empty_site.running.client() as client:
        run = await begun(client, wide())
        await client.wait(run.run_id, timeout_s=60)
    await page.goto(f"/runs/{run.run_id}")
    nodes = page.locator("#picture .node")
    await expect(nodes).to_have_count(2)
    await expect(nodes.filter(has_text="part…")).to_contain_text(f"{WIDE} steps")
    await nodes.filter(has_text="part…").click()
    await page.wait_for_url(re.compile("open="))
    await expect(nodes).to_have_count(1 + 60 + 1)
    # Every step is in the table all the same.
    await page.locator("#find").fill("part_319")
    await page.keyboard.press("Enter")
    await expect(page.locator("#steps tbody tr")).to_have_count(1)


async def test_the_graph_follows_what_runs(empty_site: Site, page: Page, tmp_path: Path) -> None:
    await page.set_viewport_size({"width": 900, "height": 800})
    async with empty_site.running.client() as client:
        run = await begun(client, chain(tmp_path))
        await page.goto(f"/runs/{run.run_id}")
        waits, ends = (page.locator("#picture .node", has_text=name) for name in ("waits", "ends"))
        await expect(page.locator("#picture .node.busy")).to_contain_text("waits")
        await page.locator("#picture .canvas").evaluate("canvas => { canvas.scrollLeft = 0; }")
        await expect(waits).not_to_be_in_viewport()
        follow = page.get_by_role("button", name="Follow")
        await follow.click()
        await expect(follow).to_have_attribute("aria-pressed", "true")
        await expect(waits).to_be_in_viewport()
        (tmp_path / "go").touch()
        await expect(ends).to_contain_text("succeeded")
        await client.wait(run.run_id, timeout_s=60)


async def test_a_channel_is_tried_before_it_is_needed(empty_site: Site, page: Page) -> None:
    answers = iter([reply("200 OK", b"thanks"), reply("503 Service Unavailable", b"later")])
    async with receiving(lambda _: next(answers)) as server, empty_site.running.client() as client:
        await client.add_channel(wire.NewChannel(name="ops", target=WebhookTarget(server.url("/hook")), events=[]))
        await page.goto("/channels")
        await page.locator("tr", has_text="ops").get_by_role("button", name="Test").click()
        told = page.get_by_role("status")
        await expect(told).to_contain_text("ops: test message delivered, status 200")
        await expect(told).to_contain_text("thanks")
        assert [got.line.split()[:2] for got in server.got] == [["POST", "/hook"]]
        await page.locator("tr", has_text="ops").get_by_role("button", name="Test").click()
        await expect(told).to_contain_text("ops: test message not delivered, status 503")


async def test_a_token_is_shown_once(empty_site: Site, page: Page) -> None:
    await page.goto("/settings")
    await page.get_by_label("New token").fill("a reader")
    await page.get_by_role("button", name="Create token").click()
    told = page.get_by_role("status")
    await expect(told).to_contain_text("it is not shown again")
    token = await told.locator("pre").inner_text()
    async with AsyncClient(empty_site.url, token) as reader:
        assert (await reader.jobs()).items is not None
        with pytest.raises(Forbidden):
            await reader.create_job({"name": "not-allowed", "task": {"kind": "noop"}})
    await page.goto("/settings")
    await expect(page.locator("tr", has_text="a reader")).to_be_visible()
    assert token not in await page.content()
    # Revoked, it opens nothing as soon as nobody remembers it.
    row = page.locator("tr", has_text="a reader")
    await row.locator("summary").click()
    await row.get_by_role("button", name="Revoke a reader").click()
    await expect(row).to_have_count(0)
    async with AsyncClient(empty_site.url, token) as reader:

        async def refused() -> bool:
            try:
                await reader.jobs()
            except Unauthenticated:
                return True
            return False

        await until_async("the token to be refused", refused, within_s=60)

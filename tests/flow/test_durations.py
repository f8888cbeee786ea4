"""One definition of duration: API, command line and web UI show the same number for an execution, a step and a run."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import CliRunner

from mainspring import wire
from mainspring.cli.main import main
from mainspring.display.times import span
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, sign_in
from tests.support.workflow_pages import begun

pytestmark = pytest.mark.anyio

STEPS = {
    "work": {"task": {"kind": "shell", "argv": ["sleep", "0.2"]}},
    "then": {"wait": {"for": "10ms"}, "needs": ["work"]},
}


async def command(cluster: Cluster, *words: str) -> str:
    args = ["--url", cluster.url, "--token", cluster.token, *words]
    result = await asyncio.to_thread(CliRunner().invoke, main, args, prog_name="mainspring")
    assert result.exit_code == 0, result.output
    return result.stdout


async def decoded(cluster: Cluster, *words: str) -> Any:
    return msgspec.json.decode(await command(cluster, *words, "-o", "json"))


def line_of(text: str, words: str) -> str:
    return next(line for line in text.splitlines() if words in line)


def row(html: str, start: str, end: str = "</tr>") -> str:
    begin = html.index(start)
    return Page(html[begin : html.index(end, begin)]).text


@pytest.fixture(scope="module")
async def ended(cluster: Cluster) -> wire.Run:
    """A run whose first step waited for a worker: the wait is no part of its duration."""
    run = await begun(cluster, "timed", STEPS)
    async with cluster.client() as client:
        first = (await client.run(run.run_id)).steps[0].execution_id
        assert first is not None and (await client.execution(first)).state == "queued"
        async with cluster.worker():
            await client.wait(run.run_id, timeout_s=60)
            return await client.run(run.run_id)


async def test_an_execution_and_its_step_have_one_duration(cluster: Cluster, ended: wire.Run) -> None:
    step = next(step for step in ended.steps if step.name == "work")
    async with cluster.client() as client:
        execution = await client.execution(step.execution_id or "")
    assert execution.duration_ms is not None and execution.duration_ms >= 200
    assert step.duration_ms == execution.duration_ms
    number, text = execution.duration_ms, span(execution.duration_ms)
    ref, run = str(execution.execution_id), str(ended.run_id)

    printed = await decoded(cluster, "executions", "get", ref)
    assert printed["duration_ms"] == number
    printed = await decoded(cluster, "runs", "show", run)
    assert next(s for s in printed["steps"] if s["name"] == "work")["duration_ms"] == number
    assert f"(duration {text})" in await command(cluster, "executions", "get", ref)
    assert f" {text} " in line_of(await command(cluster, "executions", "list", "-o", "wide"), ref)
    assert f" {text}" in line_of(await command(cluster, "runs", "show", run), "work")
    assert f"work {text}" in await command(cluster, "runs", "graph", run)

    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, cluster.token)
        assert f"duration {text}" in Page((await browser.get(f"/executions/{ref}")).text).text
        assert text in row((await browser.get("/executions")).text, f'id="e-{ref}"')
        page = (await browser.get(f"/runs/{run}?panel=work")).text
        assert f" {text}" in row(page, 'id="step-work"')
        assert f"· {text}" in row(page, 'id="n-0"', "</svg>")
        assert f"Duration{text}" in row(page, 'id="panel"', "</aside>")


async def test_an_execution_has_one_start_delay(cluster: Cluster, ended: wire.Run) -> None:
    """The step waited for a worker: the instants of the API, the command line and the lists agree on how long."""
    ref = str(next(step for step in ended.steps if step.name == "work").execution_id)
    async with cluster.client() as client:
        execution = await client.execution(ref)
    assert execution.late_ms is not None and execution.started_at is not None and execution.late_ms > 0
    assert execution.late_ms == round((execution.started_at - execution.due_at).total_seconds() * 1000)
    text = span(execution.late_ms)
    assert f"(start delay {text})" in await command(cluster, "executions", "get", ref)
    assert f" {text} " in line_of(await command(cluster, "executions", "list", "-o", "wide"), ref)
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, cluster.token)
        assert f" {text}" in row((await browser.get("/executions")).text, f'id="e-{ref}"')
        assert f" {text}" in row((await browser.get("/")).text, f'id="e-{ref}"')


async def test_a_run_and_a_step_without_an_execution_have_one_duration(cluster: Cluster, ended: wire.Run) -> None:
    step, run = next(step for step in ended.steps if step.name == "then"), str(ended.run_id)
    assert step.duration_ms is not None and ended.duration_ms is not None
    assert ended.started_at is not None and ended.finished_at is not None
    assert ended.duration_ms == round((ended.finished_at - ended.started_at).total_seconds() * 1000)
    async with cluster.client() as client:
        assert (await client.execution(run)).duration_ms == ended.duration_ms
    printed = await decoded(cluster, "runs", "show", run)
    assert printed["duration_ms"] == ended.duration_ms
    assert next(s for s in printed["steps"] if s["name"] == "then")["duration_ms"] == step.duration_ms
    listed = await command(cluster, "runs", "list")
    assert span(ended.duration_ms) in listed
    assert re.search(rf"then\s.*{span(step.duration_ms)}", await command(cluster, "runs", "show", run))
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, cluster.token)
        html = (await browser.get(f"/runs/{run}")).text
        assert f"duration {span(ended.duration_ms)}" in Page(html).text
        assert f" {span(step.duration_ms)}" in row(html, 'id="step-then"')

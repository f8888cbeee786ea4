"""One execution in the API, the CLI and the web UI."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, sign_in
from tests.support.principals import without_ids
from tests.support.remote_worker import Remote, remote

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(sys.executable).with_name("mainspring"))


class Surfaces:
    """One execution as each of the three shows it."""

    def __init__(self, cluster: Cluster, browser: httpx2.AsyncClient) -> None:
        self._cluster = cluster
        self._browser = browser

    async def api(self, execution: UUID, more: str = "") -> Any:
        headers = {"authorization": f"Bearer {self._cluster.token}"}
        answer = await self._browser.get(f"/api/v1/executions/{execution}{more}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def program(self, *words: str) -> str:
        env = {"MAINSPRING_URL": self._cluster.url, "MAINSPRING_TOKEN": self._cluster.token, "TZ": "UTC"}

        def run() -> str:
            return subprocess.run(
                [PROGRAM, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                env=env,
                check=True,
            ).stdout

        return await asyncio.to_thread(run)

    async def page(self, execution: UUID) -> Page:
        answer = await self._browser.get(f"/executions/{execution}")
        assert answer.status_code == 200, answer.text
        return Page(answer.text)


@pytest.fixture
async def surfaces(cluster: Cluster) -> AsyncIterator[Surfaces]:
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, cluster.token)
        yield Surfaces(cluster, browser)


async def tell(worker: Remote, given: wire.Assignment, **how: Any) -> None:
    result = wire.Result(execution_id=given.execution_id, attempt=given.attempt, **how)
    of: dict[str, Any] = {"execution_id": given.execution_id, "attempt": given.attempt}
    chunks = [
        wire.Output(**of, seq=0, stream="stdout", data=b"to stdout\n"),
        wire.Output(**of, seq=1, stream="stderr", data=b"to stderr\n"),
    ]
    settled = await worker.link.results(wire.Results(session_id=worker.session_id, results=[result], output=chunks))
    assert settled.stale == []


@pytest.mark.requirement(61)
async def test_every_field_of_an_execution_is_shown_everywhere(cluster: Cluster, surfaces: Surfaces) -> None:
    spec = {
        "name": "all-fields",
        "queue": "fields",
        "task": {"kind": "noop"},
        "metadata": {"team": "night shift"},
        "retries": {"max": 0},
    }
    async with cluster.client() as client, remote(cluster, name="worker-7", queue="fields") as worker:
        await client.create_job(spec)
        execution = (await client.trigger("all-fields")).execution_id
        (given,) = (await worker.poll()).executions
        report = wire.ProgressReport(execution_id=execution, attempt=1, done=30, total=40, message="thirty of forty")
        await worker.beat(execution, progress=[report])

        running = await surfaces.api(execution)
        assert running["progress"]["percent"] == 75 and running["started_at"] and running["finished_at"] is None
        shown = await surfaces.program("executions", "get", str(execution)), (await surfaces.page(execution)).text
        assert all("75" in text and "thirty of forty" in text and "running" in text for text in shown)

        ending = {"outcome": "failed", "duration_ms": 4321, "exit_code": 73, "error": "no such table"}
        await tell(worker, given, **ending, result={"rows": 3})

    found = await surfaces.api(execution)
    assert {name: found[name] for name in ("worker", "attempt", "duration_ms", "exit_code", "error", "result")} == {
        "worker": "worker-7",
        "attempt": 1,
        "duration_ms": 4321,
        "exit_code": 73,
        "error": "no such table",
        "result": {"rows": 3},
    }
    assert found["metadata"] == {"team": "night shift"}
    assert found["fire_at"] <= found["started_at"] <= found["finished_at"]
    logs = await surfaces.api(execution, "/logs")
    streams = {chunk["stream"]: chunk["text"] for chunk in logs["chunks"]}
    assert streams == {"stdout": "to stdout\n", "stderr": "to stderr\n"}

    program = await surfaces.program("executions", "get", str(execution))
    program += await surfaces.program("executions", "logs", str(execution))
    page = await surfaces.page(execution)
    instants = {name: found[name].partition(".")[0].replace("T", " ") for name in ("started_at", "finished_at")}
    for text in ("worker-7", "73", "no such table", '"rows"', "night shift", "to stdout", "to stderr", "4.3 s"):
        assert text in program and text in page.raw_text, text
    assert all(at.partition(" ")[2] in program for at in instants.values())
    told = {attributes.get("datetime") or "" for attributes in page.all("time")}
    for name in ("fire_at", "started_at", "finished_at"):
        assert any(at.startswith(found[name].partition(".")[0]) for at in told), name


@pytest.mark.requirement(68)
async def test_the_timeline_of_an_execution_grows_and_is_the_same_everywhere(
    cluster: Cluster, surfaces: Surfaces
) -> None:
    spec = {
        "name": "timeline",
        "queue": "timeline",
        "task": {"kind": "noop"},
        "retries": {"max": 3, "base": "1h", "jitter": "none"},
    }
    seen: list[list[dict[str, Any]]] = []

    async def look() -> None:
        seen.append((await surfaces.api(execution, "/events"))["items"])

    async with cluster.client() as client, remote(cluster, name="first", queue="timeline") as worker:
        await client.create_job(spec)
        execution = (await client.trigger("timeline")).execution_id
        await look()
        (given,) = (await worker.poll()).executions
        await look()
        await worker.tell(given, "preempted")
        await look()
        (given,) = (await worker.poll()).executions
        await tell(worker, given, outcome="failed", duration_ms=1, error="oops")
        await look()
        await client.cancel(execution, "enough")
        await look()
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(seen))
    last = seen[-1]
    assert [event["event"].removeprefix("execution.") for event in last] == [
        "created",
        "due",
        "queued",
        "started",
        "retrying",
        "queued",
        "started",
        "retrying",
        "cancelled",
    ]
    assert [event["at"] for event in last] == sorted(event["at"] for event in last)

    by_program = json.loads(await surfaces.program("executions", "timeline", str(execution), "-o", "json"))
    assert by_program["items"] == last
    as_text = await surfaces.program("executions", "timeline", str(execution))
    assert all(event["event"] in as_text for event in last) and "cancelled by test admin: enough" in without_ids(
        as_text
    )
    page = await surfaces.page(execution)
    happened = page.text.rpartition("Events")[2]
    at = 0
    for event in last:
        found = happened.find(event["event"].removeprefix("execution."), at)
        assert found >= at, event
        at = found
    told = [attributes.get("datetime") or "" for attributes in page.all("time")]
    assert all(any(at.startswith(event["at"].partition(".")[0]) for at in told) for event in last)

"""The bar of a running execution: there from the start, moved by the stream, gone at the end."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from tests.conftest import Cluster
from tests.support.live_page import listening
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


def bar(html: str) -> tuple[str, str] | None:
    found = re.search(r'<progress [^>]*value="([\d.]+)"></progress><span>([^<]*)</span>', html)
    return None if found is None else (found[1], found[2])


@pytest.mark.requirement(65)
async def test_the_bar_moves_while_it_runs(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        run = await client.trigger(queue)
        (given,) = (await worker.poll()).executions
        path = f"/executions/{run.execution_id}"
        assert bar((await browser.get(path)).text) is None

        async def report(done: float) -> None:
            told = wire.ProgressReport(
                execution_id=given.execution_id, attempt=1, done=done, total=1000, rate=50.0, message="a <b>"
            )
            await worker.beat(given.execution_id, progress=[told])

        await report(410)
        assert bar((await browser.get(path)).text) == (
            "41.0",
            "41 % · 410/1000 · ~12 s left · 50/s · a &lt;b&gt;",
        )
        async with listening(browser, f"/ui/stream?view=execution&execution={run.execution_id}") as told:
            seen = []
            async for event in told:
                if (found := bar(event.data)) is not None:
                    seen.append(found[0])
                if seen == ["41.0"]:
                    await report(500)
                if seen == ["41.0", "50.0"]:
                    break
        await worker.tell(given)
        assert bar((await browser.get(path)).text) is None

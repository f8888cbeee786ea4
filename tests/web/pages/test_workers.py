from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.views import workers as worker_views
from tests.conftest import Cluster, started
from tests.support.live_page import listening, until
from tests.support.pages import Page, open_page
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio

LEASE_S = 14.0
"""Long enough that an open page looks while the worker is suspect, on a busy machine too."""


@pytest.fixture(scope="module")
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, session_lease_s=LEASE_S) as cluster:
        yield cluster


async def queued(cluster: Cluster) -> tuple[str, UUID]:
    """A queue of its own with an execution in it."""
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client:
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        return queue, (await client.trigger(queue)).execution_id


async def page_of(cluster: Cluster, name: str) -> wire.Worker:
    return next(w for w in await worker_views.list_workers(cluster.database, tenant=TENANT) if w.name == name)


@pytest.mark.slow
async def test_a_worker_that_falls_silent_tells_its_story(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    queue, execution_id = await queued(cluster)
    async with remote(cluster, name="quiet", queue=queue) as worker:
        await worker.poll()
        await worker.beat(execution_id)
        known = await page_of(cluster, "quiet")
        page = await open_page(browser, f"/workers/{known.worker_id}")
        assert "runs one execution in 100 slots" in page.text and f"e-{execution_id}" in page.ids()
        assert page.active_parts() == []
        async with listening(browser, f"/ui/stream?view=worker&worker={known.worker_id}") as events:
            suspect = await until(events, "It has missed heartbeats")
            assert "It runs one execution, requeued if the lease expires." in Page(suspect.data).text
            lost = Page((await until(events, "It was lost")).data).text
            if "requeued" not in lost:  # declared lost a moment before its executions are given back
                lost = Page((await until(events, "requeued")).data).text
        assert "its lease expired without a heartbeat. One execution ran on it and was requeued." in lost
        async with remote(cluster, name="other", queue=queue) as other:
            (given,) = (await other.poll()).executions
            again = await open_page(browser, f"/workers/{known.worker_id}")
            assert "runs again as attempt 2 on other" in again.text
            await other.tell(given)
        assert "succeeded with attempt 2 on other" in (await open_page(browser, f"/workers/{known.worker_id}")).text


async def test_a_worker_that_its_guardian_reports_is_lost_at_once(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    queue, _ = await queued(cluster)
    async with remote(cluster, name="killed", queue=queue) as worker:
        await worker.poll()
        known = await page_of(cluster, "killed")
        async with listening(browser, f"/ui/stream?view=worker&worker={known.worker_id}") as events:
            await until(events, "Running executions")
            await worker.goodbye(lost=True)
            told = await until(events, "requeued")
            assert "It was lost: its process died." in Page(told.data).text
    async with remote(cluster, name="killed", queue=f"q{uuid4().hex}"):
        page = await open_page(browser, f"/workers/{known.worker_id}")
        assert "Earlier sessions" in page.text and "runs no execution" in page.text


async def test_a_worker_of_nobody_is_not_found(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for ref in ("nonsense", str(uuid4())):
        assert (await browser.get(f"/workers/{ref}")).status_code == 404

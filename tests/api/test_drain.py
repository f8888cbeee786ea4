"""Draining a worker from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import noop, script
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


async def test_a_drained_worker_finishes_and_claims_nothing_until_it_is_resumed(
    cluster: Cluster, client: AsyncClient, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    slow = await client.create_job(
        script('until [ -e "$GO" ]; do sleep 0.05; done', env={"GO": str(go)}, queue="drained")
    )
    quick = await client.create_job(noop(queue="drained"))
    async with cluster.worker(name="drained", queues=("drained",)):
        running = await client.trigger(slow.name)

        async def runs() -> bool:
            return (await client.execution(running.execution_id)).state == "running"

        await until_async("it runs", runs, within_s=20)
        found = await client.drain_worker("drained", "new kernel")
        assert found.state == "draining"
        assert (await client.drain_worker("drained")).state == "draining"
        waiting = await client.trigger(quick.name)
        go.touch()
        assert (await client.wait(running.execution_id, timeout_s=30)).state == "succeeded"
        assert (await client.execution(waiting.execution_id)).state == "queued"
        assert (await client.resume_worker("drained")).state in ("idle", "busy")
        assert (await client.wait(waiting.execution_id, timeout_s=30)).state == "succeeded"
    entries = (await client.audit(subject="drained")).items
    assert [(e.action, e.reason) for e in entries] == [("worker.resume", None), ("worker.drain", "new kernel")]


async def test_a_worker_that_is_gone_or_of_another_tenant_is_refused(
    cluster: Cluster, client: AsyncClient, neighbour: AsyncClient
) -> None:
    async with cluster.worker(name="gone"):
        with pytest.raises(NotFound, match="no worker 'gone'"):
            await neighbour.drain_worker("gone")
        assert (await client.workers()).items
    with pytest.raises(Conflict, match="offline"):
        await client.drain_worker("gone")
    with pytest.raises(NotFound):
        await client.resume_worker("never")

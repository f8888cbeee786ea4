"""The bound of a queue holds for whatever starts in it, whatever its job says."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from tests.conftest import Cluster
from tests.support.remote_worker import Remote, remote


async def timeout_of(worker: Remote, client: AsyncClient, job: str) -> float:
    await client.trigger(job)
    polled = await worker.poll()
    (given,) = polled.executions
    await worker.tell(given)
    return polled.definitions[given.definition].timeout_s


@pytest.mark.requirement(51)
async def test_what_starts_has_the_timeout_its_queue_allows_then(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:

        async def job(**more: Any) -> str:
            name = f"job-{uuid4()}"
            await client.create_job({"name": name, "task": {"kind": "noop"}, "queue": queue, **more})
            return name

        unsaid, minute, day = await job(), await job(timeout="1m"), await job(timeout="1d")
        assert [await timeout_of(worker, client, name) for name in (unsaid, minute, day)] == [3600, 60, 86_400]
        await client.set_queue(queue, {"max_duration_s": 600})
        assert [await timeout_of(worker, client, name) for name in (unsaid, minute, day)] == [600, 60, 600]
        approved = await job(timeout="2d")
        assert await timeout_of(worker, client, approved) == 2 * 86_400, "its writer had the right to exceed the bound"
        await client.set_queue(queue, {"max_duration_s": 7200})
        assert [await timeout_of(worker, client, name) for name in (unsaid, minute, day)] == [7200, 60, 7200]
        await client.set_queue(queue, {"max_duration_s": None})
        assert [await timeout_of(worker, client, name) for name in (unsaid, minute, day)] == [3600, 60, 86_400]


@pytest.mark.requirement(80)
async def test_a_bound_is_enforced_and_exceeding_it_takes_a_right(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.database.connection() as connection:
        plain = await issue_token(connection, tenant=DEFAULT_TENANT, name="plain", scopes=("read", "write"))
        right = await issue_token(connection, tenant=DEFAULT_TENANT, name="right", scopes=("read", "write", "exceed"))
    sleep = {"task": {"kind": "shell", "argv": ["sleep", "2"]}, "queue": queue, "retries": {"max": 0}}
    async with (
        cluster.client() as admin,
        AsyncClient(cluster.url, plain) as writer,
        AsyncClient(cluster.url, right) as boss,
        cluster.worker(queues=[queue], name=queue),
    ):
        found = await admin.set_queue(queue, {"max_duration_s": 1})
        assert found.settings.max_duration_s == 1
        with pytest.raises(Invalid, match=f"the timeout of 1m exceeds the maximum of the queue {queue}, 1s"):
            await writer.create_job({"name": f"refused-{queue}", "timeout": "1m", **sleep})
        held = await writer.create_job({"name": f"held-{queue}", **sleep})
        ended = await writer.wait((await writer.trigger(held.name)).execution_id, timeout_s=30)
        assert (ended.state, ended.error) == ("timed_out", "timed out after 1 s")
        free = await boss.create_job({"name": f"free-{queue}", "timeout": "1m", **sleep})
        ended = await writer.wait((await writer.trigger(free.name)).execution_id, timeout_s=30)
        assert ended.state == "succeeded"

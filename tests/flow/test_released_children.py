"""Dependencies between jobs with a real worker: their order, and children that an operator releases."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient, Client
from tests.conftest import Cluster
from tests.support.api_jobs import noop, output, script
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


async def child_execution(client: AsyncClient, child: str) -> wire.Execution:
    """The only execution of a child, once it has ended."""
    found: list[UUID] = []

    async def exists() -> bool:
        found[:] = [e.execution_id for e in (await client.history(child)).items]
        return bool(found)

    await until_async(f"an execution of {child}", exists, within_s=30)
    (only,) = found
    return await client.wait(only, timeout_s=30)


@pytest.mark.requirement(99)
async def test_api_and_sdk_return_the_topological_order_of_connected_jobs(cluster: Cluster) -> None:
    """A diamond of jobs, declared in an order that is not topological, and a step set of a workflow."""
    name = {letter: f"{letter}-{uuid4().hex[:8]}" for letter in "dbcax"}
    edges = [("d", "b"), ("d", "c"), ("b", "a"), ("c", "a")]
    async with cluster.client() as client:
        for job in name.values():
            await client.create_job(noop() | {"name": job})
        for child, parent in edges:
            await client.add_need(name[child], name[parent])
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        by_api = (await http.get(f"/api/v1/jobs/{name['b']}/dependencies")).json()["order"]

    def by_client() -> tuple[list[str], list[str]]:
        steps = {letter: {"task": {"kind": "noop"}, "needs": [p for c, p in edges if c == letter]} for letter in "dbca"}
        with Client(cluster.url, cluster.token) as client:
            return client.needs(name["b"]).order, client.check_workflow({"name": "w", "steps": steps}).order

    by_sdk, steps = await asyncio.to_thread(by_client)
    assert by_api == by_sdk and set(by_api) == {name[letter] for letter in "abcd"}, "and no job that is not connected"
    assert all(by_api.index(name[parent]) < by_api.index(name[child]) for child, parent in edges)
    assert all(steps.index(parent) < steps.index(child) for child, parent in edges) and len(steps) == 4


@pytest.mark.requirement(102)
async def test_force_complete_starts_the_children_of_a_failed_job(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker():
        parent = await client.create_job(script("exit 3"))
        children = [await client.create_job(script("echo started")) for _ in range(2)]
        for child in children:
            await client.add_need(child.name, parent.name)
        failed = await client.wait((await client.trigger(parent.name)).execution_id, timeout_s=30)
        assert failed.state == "failed"
        assert not [e for child in children for e in (await client.history(child.name)).items], "they wait"
        await client.force_complete_job(parent.name, "loaded by hand")
        for child in children:
            ended = await child_execution(client, child.name)
            assert (ended.state, await output(client, ended)) == ("succeeded", "started\n")
        (entry,) = (await client.audit(subject=parent.name, action="job.force_complete")).items
    assert (entry.name, entry.reason, entry.details["freed"]) == (parent.name, "loaded by hand", 2)


@pytest.mark.requirement(103)
async def test_a_skipped_parent_is_seen_by_its_child(cluster: Cluster) -> None:
    flag: dict[str, Any] = {"parents_not_run": {"default": []}}
    async with cluster.client() as client, cluster.worker():
        parent = await client.create_job(script("echo never"))
        child = await client.create_job(
            script('echo "$NOT_RUN"', params=flag, env={"NOT_RUN": "{{params.parents_not_run}}"})
        )
        await client.add_need(child.name, parent.name)
        await client.skip_job(parent.name, "not today")
        ended = await child_execution(client, child.name)
        assert ended.state == "succeeded" and ended.params == {"parents_not_run": [parent.name]}
        assert parent.name in await output(client, ended), "the flag reaches the program"
        assert not [e for e in (await client.history(parent.name)).items if e.state == "succeeded"], "it did not run"
        (entry,) = (await client.audit(subject=parent.name, action="job.skip")).items
    assert entry.reason == "not today"

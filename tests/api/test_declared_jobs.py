"""Jobs that code declares: their origin, and edits that the next load of the code undoes."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import pytest

from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec
from mainspring.domain.task import PythonTask
from mainspring.worker.transport.api_client import ApiAddress, ApiClient
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio


def spec(name: str, priority: int = 5) -> JobSpec:
    return JobSpec(name=name, task=PythonTask("shop:pay"), priority=priority)


async def declare(cluster: Cluster, *jobs: JobSpec) -> list[tuple[str, str | None]]:
    api = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
    try:
        return [(job.change, job.warning) for job in (await api.declare(list(jobs))).jobs]
    finally:
        await api.close()


async def test_an_edit_warns_and_the_next_load_says_what_it_undid(cluster: Cluster, client: AsyncClient) -> None:
    name = f"declared-{uuid4().hex[:8]}"
    assert await declare(cluster, spec(name)) == [("created", None)]
    job = await client.job(name)
    assert job.declared is not None
    assert (job.declared.function, job.declared.version, job.declared.edited) == ("shop:pay", 1, False)
    edited = await client.patch_job(name, {"priority": 9})
    assert edited.declared is not None
    assert edited.declared.edited
    assert [w for w in edited.warnings if "code declares this job (shop:pay)" in w]
    ((change, warning),) = await declare(cluster, spec(name))
    assert change == "updated"
    assert warning is not None
    assert "replaced version 2, an edit by " in warning
    assert f"mainspring jobs versions {name}" in warning
    after = await client.job(name)
    assert (after.spec.priority, after.declared and after.declared.edited) == (5, False)


async def test_a_change_of_the_code_alone_warns_of_nothing(cluster: Cluster) -> None:
    name = f"declared-{uuid4().hex[:8]}"
    await declare(cluster, spec(name))
    assert await declare(cluster, spec(name)) == [("unchanged", None)]
    assert await declare(cluster, spec(name, priority=6)) == [("updated", None)]


async def test_a_rollback_warns_too_and_pausing_is_no_edit(cluster: Cluster, client: AsyncClient) -> None:
    name = f"declared-{uuid4().hex[:8]}"
    await declare(cluster, spec(name))
    await declare(cluster, spec(name, priority=6))
    paused = await client.pause_job(name)
    assert paused.declared is not None
    assert not paused.declared.edited
    rolled = await client.rollback(name, 1)
    assert [w for w in rolled.warnings if "undoes the edit" in w]


async def test_a_job_that_nobody_declared_has_no_origin(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    name = f"plain-{uuid4().hex[:8]}"
    made = await client.create_job({"name": name, "task": {"kind": "python", "function": "shop:pay"}})
    assert made.declared is None
    assert (await http.get(f"/api/v1/jobs/{name}")).json()["declared"] is None

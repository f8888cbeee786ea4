"""Job dependencies over HTTP, the client and the CLI."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.client import Client
from mainspring.domain.errors import Conflict
from mainspring.domain.job import JobSpec, NoopTask, WorkflowTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from tests.conftest import Cluster
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def named(cluster: Cluster) -> Cluster:
    async with cluster.client() as client:
        for name in ("extract", "load", "report"):
            await client.create_job(JobSpec(name=name, task=NoopTask()))
        await client.create_job(JobSpec(name="hourly", task=NoopTask(), schedule=ScheduleSpec(every=3600)))
    return cluster


async def test_needs_are_added_listed_and_removed(named: Cluster) -> None:
    shell = Shell(named)
    assert "no dependencies" in (await shell("jobs", "needs", "list", "load")).output
    assert "order: extract → load" in (await shell("jobs", "needs", "add", "load", "extract")).output
    told = (await shell("jobs", "needs", "add", "report", "load", "--timeout", "6h")).output
    assert "report needs load" in told and "pending" in told and "6 h" in told
    assert "order: extract → load → report" in told
    told = (await shell("jobs", "needs", "add", "extract", "report", code=6)).output
    assert "a cycle: extract → load → report → extract" in told
    assert "needs load already" in (await shell("jobs", "needs", "add", "report", "load", code=5)).output
    await shell("jobs", "needs", "add", "report", "nobody", code=3)
    assert (
        "has no schedule" in (await shell("jobs", "needs", "add", "extract", "hourly", "--wait", "1h", code=6)).output
    )
    assert "1 h" in (await shell("jobs", "needs", "add", "hourly", "report", "--wait", "1h")).output
    await shell("jobs", "skip", "load", "--reason", "known")
    assert "no dependencies" in (await shell("jobs", "needs", "remove", "load", "extract")).output
    await shell("jobs", "needs", "remove", "load", "extract", code=3)
    await shell("jobs", "needs", "remove", "hourly", "report")
    assert (await shell("jobs", "needs", "list", "report", "-o", "name")).output.strip() == "load"
    told = (await shell("jobs", "delete", "load", "--yes", code=5)).output
    assert "load is needed by report" in told and "--detach" in told
    assert "load deleted" in (await shell("jobs", "delete", "load", "--yes", "--detach", "--reason", "over")).output
    assert "no dependencies" in (await shell("jobs", "needs", "list", "report")).output
    told = (await shell("audit", "list", "--subject", "report")).output
    assert "load was deleted" in told and "job.unneed" in told


async def test_a_workflow_that_is_a_step_of_another_stays(named: Cluster, tmp_path: object) -> None:
    from tests.support.runs import spec

    shell = Shell(named)
    async with named.client() as client:
        await client.apply_workflow(spec("inner", {"x": {}}))
        await client.apply_workflow(spec("outer", {"in": {"workflow": "inner"}}))
        assert isinstance((await client.job("inner")).spec.task, WorkflowTask)
    assert "inner is a step of outer" in (await shell("workflows", "delete", "inner", "--yes", code=5)).output
    await shell("workflows", "delete", "inner", "--yes", "--force")


@pytest.mark.requirement(126)
async def test_pausing_running_now_and_dependencies_over_http(named: Cluster) -> None:
    headers = {"Authorization": f"Bearer {named.token}"}
    async with httpx2.AsyncClient(base_url=named.url, headers=headers, trust_env=False, timeout=30) as http:
        for name in ("one", "two"):
            await http.post("/api/v1/jobs", json={"name": name, "task": {"kind": "noop"}, "schedule": {"every": 60}})
        job, needs = "/api/v1/jobs/one", "/api/v1/jobs/two/dependencies"
        assert (await http.post(f"{job}/pause", json={"reason": "holiday"})).json()["state"] == "paused"
        assert (await http.post(f"{job}/resume", json={})).json()["state"] == "active"
        made = await http.post(f"{job}/trigger", json={})
        assert made.status_code == 201 and made.json()["trigger"] == "manual"
        added = await http.post(needs, json={"job": "one", "timeout": "1h"})
        assert added.status_code == 201 and added.json()["order"] == ["one", "two"]
        assert [n["job"] for n in (await http.get(needs)).json()["needs"]] == ["one"]
        cycle = await http.post(f"{job}/dependencies", json={"job": "two"})
        assert (cycle.status_code, cycle.json()["detail"]) == (400, "a cycle: one → two → one")
        for wrong, status in (
            ({"job": "one"}, 409),
            ({"job": "nobody"}, 404),
            ({}, 422),
            ({"job": "one", "timeout": "soon"}, 422),
        ):
            assert (await http.post(needs, json=wrong)).status_code == status
        assert (await http.delete(job)).json()["code"] == "needed"
        assert (await http.delete(job, params={"cascade": "everything"})).status_code == 400
        assert (await http.delete(f"{needs}/one")).status_code == 204
        assert (await http.get(needs)).json()["needs"] == []
        assert (await http.delete(job)).status_code == 204


async def test_the_client_that_waits_has_the_same(named: Cluster) -> None:
    import asyncio

    def use() -> wire.Dependencies:
        with Client(named.url, named.token) as client:
            client.create_job(JobSpec(name="first", task=NoopTask()))
            client.create_job(JobSpec(name="second", task=NoopTask()))
            found = client.add_need("second", "first", timeout="1h")
            assert [n.timeout_s for n in client.needs("second").needs] == [3600.0]
            with pytest.raises(Conflict):
                client.delete_job("first")
            client.remove_need("second", "first")
            client.delete_job("first", reason="over")
            return found

    assert (await asyncio.to_thread(use)).order == ["first", "second"]

"""Workflows and dependencies over HTTP, on a whole server with leader duties."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.live import POLL_S
from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.params import Param
from mainspring.domain.schedule.schedule import ScheduleSpec
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio

NOOP = {"task": {"kind": "noop"}}


def workflow(**more: Any) -> dict[str, Any]:
    return {"name": f"w-{uuid4().hex[:8]}", "steps": {"a": NOOP, "b": {**NOOP, "needs": ["a"]}}, **more}


async def test_a_workflow_is_written_run_and_read(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    spec = workflow()
    for status, change in ((201, "created"), (200, "unchanged")):
        answer = await http.post("/api/v1/workflows", json=spec)
        assert (answer.status_code, answer.headers["mainspring-change"]) == (status, change)
        assert answer.json()["order"] == ["a", "b"]
    async with cluster.worker(name="api"):
        run = await client.start_run(spec["name"], key="once")
        assert (await client.start_run(spec["name"], key="once")).run_id == run.run_id
        await client.wait(run.run_id, timeout_s=30)
    found = await client.run(run.run_id)
    assert found.state == "succeeded" and [s.state for s in found.steps] == ["succeeded", "succeeded"]
    assert [r.run_id for r in (await client.runs(workflow=spec["name"])).items] == [run.run_id]
    assert spec["name"] in [w.name for w in (await client.workflows(limit=500)).items]


@pytest.mark.requirement(105)
async def test_a_scheduled_workflow_makes_runs_each_for_itself(cluster: Cluster, client: AsyncClient) -> None:
    spec = workflow(schedule={"every": "1s"}, overlap="allow")
    async with cluster.worker(name="scheduled"):
        await client.apply_workflow(spec)
        seen: dict[Any, str] = {}
        async for execution in client.feed():
            if execution.job == spec["name"] and execution.trigger == "fire" and execution.finished_at is not None:
                seen[execution.execution_id] = execution.state
            if len(seen) == 2:
                break
        await client.delete_workflow(spec["name"])
    assert set(seen.values()) == {"succeeded"}
    for run_id in seen:
        found = await client.run(run_id)
        assert found.state == "succeeded" and len({s.execution_id for s in found.steps}) == 2


async def test_a_paused_workflow_is_resumed_like_any_job(client: AsyncClient) -> None:
    spec = workflow(schedule={"every": "1h"})
    await client.apply_workflow(spec)
    assert (await client.pause_job(spec["name"])).state == "paused"
    assert (await client.workflow(spec["name"])).state == "paused"
    assert (await client.resume_job(spec["name"])).state == "active"


@pytest.mark.requirement(97)
async def test_what_is_wrong_is_answered_with_its_place(http: httpx2.AsyncClient, client: AsyncClient) -> None:
    cycle = workflow(steps={"a": {**NOOP, "needs": ["b"]}, "b": {**NOOP, "needs": ["a"]}})
    for path in ("/api/v1/workflows", "/api/v1/workflows?dry_run=true"):
        answer = await http.post(path, json=cycle)
        problem = answer.json()
        assert answer.status_code == 400 and problem["code"] == "cycle"
        assert problem["errors"][0]["message"] == "a cycle: a → b → a"
    answer = await http.post("/api/v1/workflows", json=workflow(stps={}))
    assert answer.status_code == 422 and "steps" in answer.text
    spec = workflow()
    await client.apply_workflow(spec)
    answer = await http.patch(f"/api/v1/jobs/{spec['name']}", json={"priority": 3})
    assert answer.status_code == 422 and "workflows apply" in answer.text
    answer = await http.post("/api/v1/jobs", json={"name": "x", "task": {"kind": "workflow"}})
    assert answer.status_code == 422
    for path in ("/api/v1/runs/nonsense", f"/api/v1/runs/{uuid4()}", "/api/v1/workflows/nonsense"):
        assert (await http.get(path)).status_code == 404
    assert (await http.get("/api/v1/runs?state=perfect")).status_code == 422


async def test_an_event_twice_and_a_decision_without_a_question_are_conflicts(http: httpx2.AsyncClient) -> None:
    spec = workflow(
        steps={"gate": {"event": {"name": "go"}}, "sign": {"approval": {"scope": "admin", "self_approval": True}}}
    )
    await http.post("/api/v1/workflows", json=spec)
    run = (await http.post(f"/api/v1/workflows/{spec['name']}/run", json={})).json()
    base = f"/api/v1/runs/{run['run_id']}"
    assert (await http.post(f"{base}/events/go", json={"payload": 1})).status_code == 200
    again = await http.post(f"{base}/events/go", json={"payload": 2})
    assert (again.status_code, again.json()["code"]) == (409, "event_repeated")
    assert (await http.post(f"{base}/steps/gate/approve", json={})).status_code == 409
    assert (await http.post(f"{base}/steps/nobody/approve", json={})).status_code == 404
    assert (await http.post(f"{base}/steps/sign/skip", json={"reason": ""})).status_code == 422
    answer = await http.post(f"{base}/steps/sign/approve", json={"note": "fine"})
    assert answer.json()["state"] == "succeeded"
    assert (await http.post(f"{base}/cancel", json={})).status_code == 409


async def test_runs_of_another_tenant_are_not_there(
    cluster: Cluster, client: AsyncClient, stranger: httpx2.AsyncClient, issue: Issue
) -> None:
    spec = workflow(steps={"sign": {"approval": {"self_approval": True}}})
    await client.apply_workflow(spec)
    run = await client.start_run(spec["name"])
    async with cluster.database.connection() as connection:
        other = await connection.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id", str(uuid4()))
    headers = {"Authorization": f"Bearer {await issue('admin', tenant=other)}"}
    assert (await stranger.get(f"/api/v1/workflows/{spec['name']}", headers=headers)).status_code == 404
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/cancel", {}),
        ("POST", "/steps/sign/approve", {}),
        ("POST", "/steps/sign/skip", {"reason": "x"}),
        ("POST", "/events/x", {}),
        ("POST", "/rerun", {}),
    ):
        answer = await stranger.request(method, f"/api/v1/runs/{run.run_id}{path}", json=body, headers=headers)
        assert answer.status_code == 404, path
    assert (await stranger.get("/api/v1/runs", headers=headers)).json()["items"] == []
    assert (await client.run(run.run_id)).state == "running"


async def test_steps_are_told_with_their_timeline_and_runs_side_by_side(cluster: Cluster, client: AsyncClient) -> None:
    spec = workflow(steps={"a": NOOP, "b": {**NOOP, "needs": ["a"]}})
    await client.apply_workflow(spec)
    async with cluster.worker(name="timed"):
        run = await client.start_run(spec["name"])
        await client.wait(run.run_id, timeout_s=30)
    found = await client.run(run.run_id)
    assert [(s.critical, s.worker, s.started_at is not None) for s in found.steps] == [(True, "timed", True)] * 2
    told = await client.step_timeline(run.run_id, "b")
    assert [e.event for e in told.events] == [
        "step.created",
        "step.released",
        "execution.queued",
        "execution.started",
        "execution.succeeded",
        "step.succeeded",
    ]
    grid = await client.grid(spec["name"], runs=5)
    assert grid.steps == ["a", "b"] and [r.steps for r in grid.runs] == [["succeeded", "succeeded"]]


@pytest.mark.requirement(102)
@pytest.mark.parametrize("verb", ["force-complete", "skip"])
async def test_a_failed_step_is_freed_by_request_and_by_command(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient, verb: str
) -> None:
    name = f"w-{uuid4().hex[:8]}"
    steps = {
        "load": {"task": {"kind": "shell", "argv": ["false"]}, "retries": {"max": 0}},
        "end": {"task": {"kind": "noop"}, "needs": ["load"]},
    }
    async with cluster.worker():
        await client.apply_workflow({"name": name, "steps": steps})
        run = await client.start_run(name)
        assert (await client.wait(run.run_id, timeout_s=30)).state == "failed"
        answer = await http.post(f"/api/v1/runs/{run.run_id}/steps/load/{verb}", json={"reason": "loaded by hand"})
        assert answer.status_code == 200 and answer.json()["rerun_of"] == str(run.run_id)
        assert (await client.wait(answer.json()["run_id"], timeout_s=30)).state == "succeeded"
        again = await client.start_run(name)
        await client.wait(again.run_id, timeout_s=30)
        shown = await Shell(cluster)("-o", "json", "runs", verb, str(again.run_id), "load", "--reason", "again")
        new = json.loads(shown.output)
        assert new["rerun_of"] == str(again.run_id) and new["steps"][0]["flag"] in ("forced", "skipped")
        assert (await client.wait(new["run_id"], timeout_s=30)).state == "succeeded"
    (letter,) = [x for x in (await client.dead_letters(state=["resolved"])).items if x.run_id == run.run_id]
    assert (letter.closed_by or "").startswith("test admin")


@pytest.mark.requirement(102)
@pytest.mark.requirement(103)
@pytest.mark.parametrize(("verb", "told"), [("force-complete", []), ("skip", ["PARENT"])])
async def test_the_children_of_a_job_start_when_a_person_says_so(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient, verb: str, told: list[str]
) -> None:
    parent, child = f"p-{uuid4().hex[:8]}", f"c-{uuid4().hex[:8]}"
    await client.create_job(JobSpec(name=parent, task=NoopTask()))
    await client.create_job(JobSpec(name=child, task=NoopTask(), params={"parents_not_run": Param(default=[])}))
    answer = await http.post(f"/api/v1/jobs/{child}/dependencies", json={"job": parent})
    assert answer.status_code == 201 and answer.json()["order"] == [parent, child]
    answer = await http.post(f"/api/v1/jobs/{parent}/dependencies", json={"job": child})
    assert (answer.status_code, answer.json()["code"]) == (400, "cycle")
    assert (await http.post(f"/api/v1/jobs/{parent}/{verb}", json={"reason": "by hand"})).status_code == 200
    (made,) = (await client.history(child)).items
    assert made.params == {"parents_not_run": [parent] if told else []} and made.created_by == f"after {parent}"
    assert (await http.delete(f"/api/v1/jobs/{child}/dependencies/{parent}")).status_code == 204
    entry, _ = (await client.audit(subject=parent)).items
    assert (entry.action, entry.name, entry.reason) == (f"job.{verb.replace('-', '_')}", parent, "by hand")
    assert (entry.actor, entry.details["freed"]) == ("test admin", 1)
    assert [e.action for e in (await client.audit(subject=child)).items] == ["job.unneed", "job.need", "job.create"]
    assert (await http.get("/api/v1/audit", params={"action": "job.eat"})).status_code == 422


async def test_a_job_starts_by_itself_after_the_one_it_needs(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    parent, child = f"p-{uuid4().hex[:8]}", f"c-{uuid4().hex[:8]}"
    for name in (parent, child):
        await client.create_job(JobSpec(name=name, task=NoopTask()))
    await http.post(f"/api/v1/jobs/{child}/dependencies", json={"job": parent})
    async with cluster.worker(name="needs"):
        first = await client.wait((await client.trigger(parent)).execution_id, timeout_s=30)
        until = time.monotonic() + 30
        while not (made := (await client.history(child, limit=1)).items):
            assert time.monotonic() < until, "nothing was executed"
        ended = await client.wait(made[0].execution_id, timeout_s=30)
    assert (first.state, ended.state, ended.created_by) == ("succeeded", "succeeded", f"after {parent}")


async def test_a_fire_waits_for_the_job_it_needs_and_starts_with_its_success(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    parent, child = f"p-{uuid4().hex[:8]}", f"c-{uuid4().hex[:8]}"
    await client.create_job(JobSpec(name=parent, task=NoopTask()))
    await client.create_job(JobSpec(name=child, task=NoopTask(), schedule=ScheduleSpec(every=3600)))
    answer = await http.post(f"/api/v1/jobs/{child}/dependencies", json={"job": parent, "wait": "1h"})
    assert answer.json()["needs"][0]["wait_s"] == 3600
    await client.patch_job(child, {"schedule": {"every": 1}})
    until = time.monotonic() + 30
    while not (made := (await client.history(child)).items[-1:]):
        assert time.monotonic() < until, "it did not fire"
    assert (made[0].state, made[0].trigger) == ("waiting", "fire")
    (reason,) = (await client.why(made[0].execution_id)).reasons
    assert (reason.code, reason.message) == ("needs", f"it waits until these have succeeded: {parent} (pending)")
    async with cluster.worker(name="waits"):
        await client.trigger(parent)
        ended = await client.wait(made[0].execution_id, timeout_s=30)
    assert ended.state == "succeeded"
    await client.delete_job(child)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_whoever_waits_for_a_run_hears_of_its_end_at_once(
    cluster: Cluster, client: AsyncClient, by_hand: bool
) -> None:
    spec = workflow(
        steps={"a": NOOP, "sign": {"approval": {"self_approval": True}, "needs": ["a"]}} if by_hand else {"a": NOOP}
    )
    await client.apply_workflow(spec)
    async with cluster.worker(name="heard"):
        run = await client.start_run(spec["name"])
        waiting = asyncio.create_task(client.execution(run.run_id, wait_s=20))
        first = run.steps[0].execution_id
        assert first is not None
        await client.wait(first, timeout_s=20)
        if by_hand:
            await client.decide(run.run_id, "sign", approved=True)
        begun = time.monotonic()
        found = await waiting
    # A notice that was told too early or not at all would be made up for by a look only seconds later.
    assert found.state == "succeeded" and time.monotonic() - begun < POLL_S / 2

"""Operators set the least isolation of programs in a queue, in all queues, and on a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.isolation import LEVELS, demand_with, raised, strongest
from mainspring.domain.sandbox import Sandbox
from mainspring.worker.isolation.sandbox import detect_sandbox_support
from tests.conftest import Cluster
from tests.support.remote_worker import Remote, remote
from tests.support.worker_program import worker

ABLE = {"sandbox/rlimits": "yes", "sandbox/bwrap": "yes"}
needs_bwrap = pytest.mark.skipif(detect_sandbox_support().bwrap is None, reason="bubblewrap is not usable here")


async def new_job(client: AsyncClient, queue: str, kind: str = "shell", **more: Any) -> str:
    task = {"kind": kind} | ({"argv": ["true"]} if kind == "shell" else {})
    return (await client.create_job({"name": f"job-{uuid4()}", "task": task, "queue": queue, **more})).name


async def sandbox_of(client: AsyncClient, executor: Remote, job: str) -> Sandbox | None:
    await client.trigger(job)
    polled = await executor.poll()
    (given,) = polled.executions
    await executor.tell(given)
    return polled.definitions[given.definition].sandbox


async def test_a_queue_raises_the_sandbox_of_what_starts_in_it(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue, labels=ABLE) as executor:
        plain = await new_job(client, queue)
        limited = await new_job(client, queue, sandbox={"open_files": 64})
        other = await new_job(client, queue, kind="noop")
        wanted = {
            "none": (None, Sandbox(open_files=64)),
            "process": (Sandbox(), Sandbox(open_files=64)),
            "bwrap": (Sandbox(isolation="bwrap"), Sandbox(isolation="bwrap", open_files=64)),
        }
        for level, (of_plain, of_limited) in [*wanted.items(), ("none", wanted["none"])]:
            changed = await client.set_queue(queue, {"min_isolation": level})
            assert changed.settings.min_isolation == level
            assert await sandbox_of(client, executor, plain) == of_plain
            assert await sandbox_of(client, executor, limited) == of_limited
            assert await sandbox_of(client, executor, other) is None


async def test_all_queues_of_a_tenant_have_its_minimum_and_can_only_add(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue, labels=ABLE) as executor:
        job = await new_job(client, queue)
        try:
            assert (await client.set_min_isolation("bwrap")).min_isolation == "bwrap"
            await client.set_queue(queue, {"min_isolation": "process"})
            assert await sandbox_of(client, executor, job) == Sandbox(isolation="bwrap")
        finally:
            await client.set_min_isolation("none")
        assert await sandbox_of(client, executor, job) == Sandbox()


async def test_a_worker_that_cannot_isolate_is_not_given_the_work(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue, labels={"sandbox/rlimits": "yes"}) as unable:
        await client.set_queue(queue, {"min_isolation": "bwrap"})
        job = await new_job(client, queue)
        execution = await client.trigger(job)
        assert await unable.ids(wait_s=0.5) == []
        reasons = {reason.code: reason.message for reason in (await client.why(execution.execution_id)).reasons}
        assert reasons["min_isolation"] == f"the queue {queue} requires isolation bwrap"
        assert "lacks the label sandbox/bwrap" in reasons["no_fit"]
        async with remote(cluster, queue=queue, labels=ABLE, name="able") as able:
            assert await able.ids() == [execution.execution_id]


async def test_a_program_in_a_queue_of_containers_is_refused(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue, labels=ABLE) as executor:
        old = await new_job(client, queue)
        await client.set_queue(queue, {"min_isolation": "container"})
        with pytest.raises(Invalid) as refused:
            await new_job(client, queue)
        (problem,) = refused.value.problems
        assert (refused.value.code, problem.pointer) == ("min_isolation", "/task")
        assert "container task" in problem.hint
        with pytest.raises(Invalid, match="requires isolation container"):
            await client.patch_job(old, {"description": "changed"})
        steps = {"one": {"task": {"kind": "shell", "argv": ["true"]}, "queue": queue}}
        with pytest.raises(Invalid) as refused:
            await client.apply_workflow({"name": f"flow-{queue}", "steps": steps})
        assert refused.value.problems[0].pointer == "/steps/one/task"
        waiting = await client.trigger(old)
        assert await executor.ids(wait_s=0.5) == [], "an earlier job does not start either"
        reasons = {reason.code: reason.message for reason in (await client.why(waiting.execution_id)).reasons}
        assert "which a shell task can't have" in reasons["min_isolation"]
        await new_job(client, queue, kind="noop")


@needs_bwrap
async def test_a_worker_has_a_minimum_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "shell", "argv": ["sh", "-c", "grep NoNewPrivs /proc/self/status; ls -A /run; touch /etc/x"]}
    spec = {"name": f"job-{queue}", "task": task, "queue": queue, "retries": {"max": 0}}
    options = ("-q", queue, "--min-isolation", "bwrap")
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token, *options):
        job = await client.create_job(spec)
        execution = await client.trigger(job.name)
        done = await client.wait(execution.execution_id, timeout_s=40)
        assert done.state == "failed"
        text = "".join(chunk.text for chunk in (await client.logs(execution.execution_id)).chunks)
        assert "NoNewPrivs:\t1\n" in text
        assert "Read-only file system" in text


async def test_a_worker_for_containers_offers_no_programs(cluster: Cluster, tmp_path: Path) -> None:
    options = ("--name", "contained", "--min-isolation", "container")
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token, *options):
        found = {each.name: each for each in (await client.workers()).items}
        assert not {"shell", "python"} & set(found["contained"].kinds)


def test_levels_only_add() -> None:
    assert strongest("process", "none", "bwrap") == "bwrap"
    for level in LEVELS:
        asked = Demand("shell", {"zone": "eu"})
        assert dict(asked.labels).items() <= dict(demand_with(asked, level).labels).items()
        assert demand_with(Demand("http"), level) == Demand("http")
        assert raised(None, "http", level) is None
        strong = Sandbox(isolation="bwrap", network=True, pids=3)
        assert raised(strong, "shell", level) == strong

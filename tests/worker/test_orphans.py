"""Processes that leave their attempt end with it, without a sandbox too: on every way an attempt can end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.processes import alive, children, until
from tests.support.worker_program import living, worker, written

pytestmark = pytest.mark.anyio

DETACHED = {
    "setsid": "setsid sh {script} &",
    "a double fork": "(setsid sh -c '(sh {script} &)' &)",
    "nohup": "nohup sh {script} >/dev/null 2>&1 &",
    "no environment": "(env -i setsid sh {script} >/dev/null 2>&1 &)",
}
"""Ways to leave. Each writes its process id into a file and then runs for five minutes."""

FUNCTIONS = """
import os, subprocess, sys, time

def leave(pids, clear=False, hangs=False, fork=False):
    code = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(300)"
    subprocess.Popen(
        [sys.executable, "-S", "-c", code, pids], start_new_session=True, env={} if clear else None,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    if fork and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(pids, "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(300)
        os._exit(0)
    while not os.path.exists(pids) or len(open(pids).read().split()) < 1 + fork:
        time.sleep(0.01)
    while hangs:
        time.sleep(0.01)

async def leave_async(pids):
    leave(pids)
"""


def leaving(how: str, pids: Path, after: str) -> dict[str, Any]:
    """A job that starts a process which leaves, waits for it, and goes on with `after`."""
    leaver = pids.with_suffix(".sh")
    leaver.write_text(f"echo $$ >> {pids}; sleep 300 & wait\n")
    script = f"{DETACHED[how].format(script=leaver)}\nwhile [ ! -s {pids} ]; do sleep 0.01; done; {after}"
    return {"name": f"job-{uuid4()}", "task": {"kind": "shell", "argv": [script], "shell": True}, "retries": {"max": 0}}


async def finished(client: AsyncClient, spec: dict[str, Any]) -> str:
    job = await client.create_job(spec)
    execution = await client.trigger(job.name)
    return (await client.wait(execution.execution_id, timeout_s=40)).state


async def cancelled(client: AsyncClient, spec: dict[str, Any], pids: Path) -> str:
    job = await client.create_job(spec)
    execution = await client.trigger(job.name)
    await until("the process that leaves", lambda: written(pids), within_s=20)
    await client.cancel(execution.execution_id)
    return (await client.wait(execution.execution_id, timeout_s=40)).state


@pytest.mark.parametrize("how", DETACHED)
async def test_a_process_that_leaves_ends_with_its_attempt(cluster: Cluster, tmp_path: Path, how: str) -> None:
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token) as program:
        ended, late, stopped = (tmp_path / name for name in ("ended", "late", "stopped"))
        assert await finished(client, leaving(how, ended, "exit 0")) == "succeeded"
        assert living(ended) == []
        assert await finished(client, leaving(how, late, "sleep 300") | {"timeout": "1s"}) == "timed_out"
        assert living(late) == []
        assert await cancelled(client, leaving(how, stopped, "sleep 300"), stopped) == "cancelled"
        assert living(stopped) == []
        assert not program.dead()
        known = {program.guardian}
        await until("no child but the guardian", lambda: set(children(program.process.pid)) <= known, within_s=10)


@pytest.mark.fault("F21")
@pytest.mark.parametrize("how", DETACHED)
async def test_a_process_that_leaves_ends_with_a_killed_worker(cluster: Cluster, tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"
    async with cluster.client() as client:
        job = await client.create_job(leaving(how, pids, "sleep 300"))
        async with worker(tmp_path, cluster.url, cluster.worker_token) as program:
            await client.trigger(job.name)
            await until("the process that leaves", lambda: written(pids), within_s=20)
            if how == "no environment":  # found by its parent, and so only once the worker has seen it
                await until("its adoption", lambda: program.text().count("orphan.adopted") > 0, within_s=20)
            program.send(signal.SIGKILL)
            await until("the end of the process", lambda: living(pids) == [], within_s=20)


async def test_a_process_of_another_attempt_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    """Each has left its group; one has cleared its environment. They end with their own attempts only."""
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token):
        files = {how: tmp_path / how.replace(" ", "-") for how in ("setsid", "no environment")}
        release = tmp_path / "release"
        waiting = f"while [ ! -e {release} ]; do sleep 0.02; done"
        executions = []
        for how, pids in files.items():
            job = await client.create_job(leaving(how, pids, waiting))
            executions.append(await client.trigger(job.name))
            await until("the process that leaves", lambda file=pids: written(file), within_s=20)  # type: ignore[misc]
        assert await finished(client, leaving("nohup", tmp_path / "other", "exit 0")) == "succeeded"
        assert living(tmp_path / "other") == []
        assert all(len(living(pids)) == 1 for pids in files.values())
        release.touch()
        for execution in executions:
            assert (await client.wait(execution.execution_id, timeout_s=40)).state == "succeeded"
        await until("the ends", lambda: not any(living(pids) for pids in files.values()), within_s=10)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        ("leave", {}), ("leave", {"clear": True}), ("leave", {"fork": True}), ("leave_async", {}),
        ("leave", {"hangs": True}), ("leave", {"hangs": True, "clear": True}),
    ],
)  # fmt: skip
async def test_a_process_that_a_function_leaves_ends_with_its_call(
    cluster: Cluster, tmp_path: Path, function: str, args: dict[str, Any]
) -> None:
    (tmp_path / "leaver.py").write_text(FUNCTIONS)
    pids = tmp_path / "pids"
    name = f"job-{uuid4()}"
    task = {"kind": "python", "function": f"leaver:{function}", "args": {"pids": str(pids), **args}}
    spec = {"name": name, "task": task, "retries": {"max": 0}, "timeout": "1s" if args.get("hangs") else "60s"}
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token, "-m", "leaver"):
        assert await finished(client, spec) == ("timed_out" if args.get("hangs") else "succeeded")
        assert living(pids) == []


@pytest.mark.fault
async def test_a_process_that_a_function_leaves_ends_with_a_killed_worker(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "leaver.py").write_text(FUNCTIONS)
    pids = tmp_path / "pids"
    task = {"kind": "python", "function": "leaver:leave", "args": {"pids": str(pids), "hangs": True, "fork": True}}
    async with cluster.client() as client:
        job = await client.create_job({"name": f"job-{uuid4()}", "task": task, "retries": {"max": 0}})
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-m", "leaver") as program:
            await client.trigger(job.name)
            await until("the processes", lambda: written(pids, 2), within_s=20)
            program.send(signal.SIGKILL)
            await until("their end", lambda: not any(alive(pid) for pid in living(pids)), within_s=20)

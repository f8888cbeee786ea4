"""What a job reaches of a job of another tenant beside it, with the isolations that a worker offers.

The table in docs/how-to/containers-and-sandboxes.md states the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring.domain.job import ShellTask
from mainspring.domain.sandbox import MASKED, Sandbox, is_below
from mainspring.worker.executors import Work
from mainspring.worker.executors.shell import ShellExecutor
from mainspring.worker.isolation.sandbox import detect_sandbox_support
from tests.support import neighbour_probe
from tests.support.attempts import attempt, host, written
from tests.support.processes import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement(139), pytest.mark.requirement(93)]

SUPPORT = detect_sandbox_support()
needs_bwrap = pytest.mark.skipif(SUPPORT.bwrap is None, reason="bubblewrap is not here, or may not make namespaces")
PYTHON = os.path.realpath(sys.executable)
PROBE = Path(neighbour_probe.__file__).read_text()
CLOSED, OPEN = {"isolation": "bwrap"}, {"isolation": "bwrap", "network": True}
PROCESS: dict[str, Any] = {}
NETWORK = {"abstract socket", "loopback"}
FILES = {"folder", "artifact", "checkpoint", "shared memory", "socket", "search"}
PROCESSES = {"environment", "memory", "working directory"}


@pytest.fixture(params=["/tmp", "home"])
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where workers keep the folders of attempts: where bwrap hides everything, and where it does not."""
    parent = "/tmp" if request.param == "/tmp" else str(Path.home())
    if request.param == "home" and is_below(os.path.realpath(parent), MASKED):
        pytest.skip("the home folder is masked")
    folder = tempfile.mkdtemp(prefix=".neighbours-", dir=parent)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    yield folder
    shutil.rmtree(folder)


@asynccontextmanager
async def worker() -> AsyncIterator[ShellExecutor]:
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=SUPPORT))
    try:
        yield executor
    finally:
        await executor.stop()


def work_of(sandbox: dict[str, Any], what: str, **env: str) -> Work:
    work = attempt(ShellTask(argv=(PYTHON, "-I", "-c", PROBE, what), env=env))
    definition = msgspec.structs.replace(work.definition, sandbox=msgspec.convert(sandbox, Sandbox))
    work.definition = definition
    return work


@asynccontextmanager
async def victim(executor: ShellExecutor, sandbox: dict[str, Any], temporary: str) -> AsyncIterator[dict[str, Any]]:
    """A running attempt with things of its own; yields where they are."""
    work = work_of(sandbox, "victim", SECRET=f"of-the-other-tenant-{uuid4()}")
    running = asyncio.create_task(executor.execute(work))
    lines: list[str] = []

    def has_answered() -> bool:
        assert not running.done(), running.result()
        lines.extend(written(work).splitlines())
        return bool(lines)

    try:
        await until("the attempt to have things of its own", has_answered, within_s=60)
        yield json.loads("".join(lines)) | {"search": temporary}
    finally:
        work.request_stop("cancelled")
        await running


async def reached(executor: ShellExecutor, sandbox: dict[str, Any], known: dict[str, Any]) -> set[str]:
    work = work_of(sandbox, "probe", KNOWN=json.dumps(known))
    done = await executor.execute(work)
    assert done.outcome == "succeeded", (done, written(work, "stderr"))
    return set(json.loads(written(work)))


@needs_bwrap
@pytest.mark.parametrize(
    ("of_victim", "of_probe", "allowed"),
    [
        pytest.param(CLOSED, CLOSED, set(), id="both-bwrap"),
        pytest.param(OPEN, OPEN, NETWORK, id="both-bwrap-with-network"),
        pytest.param(PROCESS, CLOSED, set(), id="only-the-neighbour-in-bwrap"),
        pytest.param(OPEN, CLOSED, set(), id="the-neighbour-without-network"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
async def test_bwrap_separates_the_jobs_of_two_tenants(
    temporary: str, workers: int, of_victim: dict[str, Any], of_probe: dict[str, Any], allowed: set[str]
) -> None:
    """On one worker that tenants share, and on two workers of one system user."""
    async with worker() as first, worker() as second, victim(first, of_victim, temporary) as known:
        assert await reached(first if workers == 1 else second, of_probe, known) == allowed


async def test_processes_of_one_system_user_are_not_separated(temporary: str) -> None:
    """The probe finds what there is to find, and the documentation says so."""
    async with worker() as one, victim(one, PROCESS, temporary) as known:
        found = await reached(one, PROCESS, known)
    assert found == FILES | PROCESSES | NETWORK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another system user")
async def test_another_system_user_reaches_sockets_of_the_network_only(temporary: str) -> None:
    """Two workers of two system users: the recommendation for tenants that do not trust each other."""
    async with worker() as one, victim(one, PROCESS, temporary) as known:
        command = ["/usr/bin/python3", "-I", "-c", PROBE, "probe"]
        env = {"KNOWN": json.dumps(known | {"files": {k: v for k, v in known["files"].items() if "memory" not in k}})}
        os.chmod(temporary, 0o711)
        done = await asyncio.to_thread(
            subprocess.run, command, env=env, user=65534, group=65534, extra_groups=(), capture_output=True, check=True
        )
    assert set(json.loads(done.stdout)) == NETWORK

"""A response that is lost after the server has committed: the clients repeat the request, and nothing exists twice."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient, Client, Server
from mainspring.client.problems import Unreachable
from tests.conftest import Cluster
from tests.support.api_proxy import ApiProxy, api_proxy
from tests.support.manifests import job as job_manifest

pytestmark = pytest.mark.anyio

SPEC = {"task": {"kind": "shell", "argv": ["true"]}}
STEPS = {"steps": {"a": {"task": {"kind": "shell", "argv": ["true"]}}}}


@pytest.fixture
def tag() -> str:
    return uuid4().hex[:8]


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[ApiProxy]:
    async with api_proxy(cluster.url) as proxy:
        yield proxy


@pytest.fixture
async def lossy(cluster: Cluster, proxy: ApiProxy) -> AsyncIterator[AsyncClient]:
    """A client whose connections lead through the proxy."""
    async with AsyncClient(server=Server(proxy.url, cluster.token, "--url")) as client:
        yield client


async def prepared(cluster: Cluster, tag: str) -> None:
    async with cluster.client() as client:
        await client.create_job({"name": f"j-{tag}", **SPEC})
        await client.apply_workflow({"name": f"w-{tag}", **STEPS})


Call = Callable[[AsyncClient, str], Awaitable[Any]]
COUNTS = {
    "jobs": "SELECT count(*) FROM jobs WHERE name = 'new-' || $1",
    "tokens": "SELECT count(*) FROM tokens WHERE name = 'new-' || $1",
    "channels": "SELECT count(*) FROM channels WHERE name = 'new-' || $1",
    "executions": "SELECT count(*) FROM executions e JOIN jobs j USING (job_id) WHERE j.name = 'j-' || $1",
    "runs": "SELECT count(*) FROM runs r JOIN jobs j USING (job_id) WHERE j.name = 'w-' || $1",
    "applied": "SELECT count(*) FROM audit WHERE action = 'manifest.apply' AND name = 'new-' || $1",
}
CALLS: dict[str, tuple[str, int, Call]] = {
    "create a job": ("jobs", 1, lambda client, tag: client.create_job({"name": f"new-{tag}", **SPEC})),
    "issue a token": (
        "tokens",
        1,
        lambda client, tag: client.issue_token(wire.NewToken(name=f"new-{tag}", scopes=["read"])),
    ),
    "run a job": ("executions", 1, lambda client, tag: client.trigger(f"j-{tag}")),
    "run a job later": (
        "executions",
        1,
        lambda client, tag: client.trigger(f"j-{tag}", wire.RunNow(reason="by hand")),
    ),
    "submit a batch": (
        "executions",
        3,
        lambda client, tag: client.submit_many([wire.BatchItem(job=f"j-{tag}") for _ in range(3)]),
    ),
    "start a run": ("runs", 1, lambda client, tag: client.start_run(f"w-{tag}")),
    "apply manifests": (
        "applied",
        1,
        lambda client, tag: client.apply_manifests(
            wire.ApplyManifests(manifests=[job_manifest(f"new-{tag}")], owner=f"new-{tag}")
        ),
    ),
}


async def count(cluster: Cluster, what: str, tag: str) -> int:
    async with cluster.database.connection() as connection:
        found: int = await connection.fetchval(COUNTS[what], tag)
    return found


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("after", [0, 40], ids=("no byte of the response", "part of the response"))
async def test_a_request_whose_response_is_lost_creates_once(
    cluster: Cluster, proxy: ApiProxy, lossy: AsyncClient, tag: str, name: str, after: int
) -> None:
    await prepared(cluster, tag)
    what, expected, call = CALLS[name]
    proxy.cut("down", after)
    first = await call(lossy, tag)
    assert proxy.has_cut
    assert await count(cluster, what, tag) == expected
    if name.startswith(("run", "submit", "start")):
        assert await call(lossy, tag) != first
        assert await count(cluster, what, tag) == 2 * expected, "another call has another key"


async def test_the_blocking_client_repeats_as_well(cluster: Cluster, proxy: ApiProxy, tag: str) -> None:
    await prepared(cluster, tag)
    with Client(server=Server(proxy.url, cluster.token, "--url")) as client:
        proxy.cut("down", 0)
        made = await asyncio.to_thread(client.trigger, f"j-{tag}")
        proxy.cut("down", 0)
        assert (await asyncio.to_thread(client.execution, made.execution_id)).execution_id == made.execution_id
        proxy.cut("down", 0)
        await asyncio.to_thread(client.create_job, {"name": f"new-{tag}", **SPEC})
    assert await count(cluster, "executions", tag) == 1
    assert await count(cluster, "jobs", tag) == 1


async def test_the_program_and_the_sdk_create_once(cluster: Cluster, proxy: ApiProxy, tag: str, tmp_path: Path) -> None:
    await prepared(cluster, tag)
    script = tmp_path / "submit.py"
    script.write_text(
        "import mainspring as ms\n\n"
        f"@ms.job(name='j-{tag}')\ndef report() -> None: ...\n\n"
        "print(report.submit().execution_id)\n"
    )
    for words in (["-m", "mainspring.cli.main", "run", f"j-{tag}", "-o", "name"], [str(script)]):
        proxy.cut("down", 0)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "MAINSPRING_URL": proxy.url, "MAINSPRING_TOKEN": cluster.token},
        )
        out, err = await process.communicate()
        assert (process.returncode, proxy.has_cut) == (0, True), err.decode()
        assert out.strip(), err.decode()
    assert await count(cluster, "executions", tag) == 2


async def test_a_request_that_is_not_repeatable_is_not_repeated(
    cluster: Cluster, proxy: ApiProxy, lossy: AsyncClient, tag: str
) -> None:
    await prepared(cluster, tag)
    proxy.cut("down", 0)
    with pytest.raises(Unreachable):
        await lossy.pause_job(f"j-{tag}", "once")


async def test_a_server_that_stays_away_is_reported(cluster: Cluster, proxy: ApiProxy, tag: str) -> None:
    await prepared(cluster, tag)
    async with AsyncClient(server=Server(proxy.url, cluster.token, "--url")) as client:
        proxy.swallow()
        call = asyncio.ensure_future(client.trigger(f"j-{tag}"))
        while not proxy.kept:
            await asyncio.sleep(0)
        proxy.end()
        with pytest.raises(Unreachable):
            await call

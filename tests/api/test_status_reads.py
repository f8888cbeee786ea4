"""Status reads over HTTP: cached, never another tenant's, and never older than the reader's own writes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.api.read_cache import ReadCache
from mainspring.client import AsyncClient
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs as intake
from mainspring.store.db import Database
from tests.conftest import Cluster, clone
from tests.support.api_processes import api_processes
from tests.support.api_tokens import Issue
from tests.support.clocks import ManualClock
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


@pytest.fixture
async def clock(cluster: Cluster) -> AsyncIterator[ManualClock]:
    """Replaces the cache by one that never receives a message, and whose time the test moves."""
    clock, own = ManualClock(), cluster.context.reads
    object.__setattr__(cluster.context, "reads", ReadCache(clock=clock))
    cluster.context.forget_tenants()
    yield clock
    object.__setattr__(cluster.context, "reads", own)
    cluster.context.forget_tenants()


@pytest.fixture
async def name(client: AsyncClient) -> str:
    name = f"job-{uuid4().hex}"
    await client.create_job({"name": name, "task": {"kind": "noop"}, "queue": name})
    return name


KINDS = ("job", "execution", "list")


async def reads_counted(http: httpx2.AsyncClient, kind: str, result: str) -> float:
    series = f'mainspring_read_cache_requests_total{{kind="{kind}",result="{result}"}} '
    lines = (await http.get("/metrics")).text.splitlines()
    return float(next(line for line in lines if line.startswith(series)).rpartition(" ")[2])


@pytest.mark.requirement(134)
async def test_reads_are_served_from_the_cache_and_counted(
    http: httpx2.AsyncClient, clock: ManualClock, client: AsyncClient, name: str
) -> None:
    execution = await client.trigger(name)
    for kind, path in (
        ("job", f"/api/v1/jobs/{name}"),
        ("execution", f"/api/v1/executions/{execution.execution_id}"),
        ("list", "/api/v1/jobs?limit=5"),
        ("list", f"/api/v1/jobs/{name}/executions"),
        ("list", "/api/v1/executions?state=queued"),
    ):
        first = await http.get(path)
        before = await reads_counted(http, kind, "hit")
        again = [await http.get(path) for _ in range(3)]
        assert all(r.status_code == 200 and r.content == first.content for r in again)
        assert all(r.headers.get("etag") == first.headers.get("etag") for r in again)
        assert await reads_counted(http, kind, "hit") == before + 3, path


@pytest.mark.requirement(134)
async def test_others_see_a_change_within_a_second_without_any_message(
    http: httpx2.AsyncClient, clock: ManualClock, cluster: Cluster, client: AsyncClient, name: str
) -> None:
    job = await client.job(name)
    # Straight into the database, as another process would.
    await intake.pause(cluster.database, job.job_id, tenant=1, reason="elsewhere")
    assert (await client.job(name)).state == "active"
    clock.at += 1
    assert (await client.job(name)).state == "paused"


@pytest.mark.requirement(134)
async def test_most_reads_of_a_mix_at_3000_a_second_are_hits(
    http: httpx2.AsyncClient, clock: ManualClock, client: AsyncClient
) -> None:
    """As in benchmarks/status.py: 50 jobs and their latest executions, with 5 % writes; here also their lists."""
    draw, prefix = random.Random(134), f"mix-{uuid4().hex[:8]}"
    names = [f"{prefix}-{n}" for n in range(50)]
    paths = []
    for name in names:
        await client.create_job({"name": name, "task": {"kind": "noop"}, "queue": prefix})
        made = [await client.cancel((await client.trigger(name)).execution_id) for _ in range(3)]
        ends = [f"/api/v1/executions/{e.execution_id}" for e in made]
        paths.append((f"/api/v1/jobs/{name}", f"/api/v1/jobs/{name}/executions", *ends))

    async def read() -> None:
        job, *others = draw.choice(paths)
        if draw.random() < 0.05:
            if draw.random() < 0.7:
                await http.post(f"{job}/trigger", json={})
            else:
                await http.patch(job, json={"description": str(draw.random())})
            path = job
        else:
            path = draw.choices([job, *others], [6, 1, 1, 1, 1])[0]
        assert (await http.get(path)).status_code == 200
        clock.at += 1 / 3000

    async def counts() -> tuple[float, float]:
        found = [sum([await reads_counted(http, kind, what) for kind in KINDS]) for what in ("hit", "miss")]
        return found[0], found[1]

    for _ in range(1000):
        await read()
    before = await counts()
    for _ in range(3000):
        await read()
    hit, miss = (after - first for after, first in zip(await counts(), before, strict=True))
    assert hit + miss == 3000
    assert hit / 3000 >= 0.85


Write = Callable[[AsyncClient, str], Any]
WRITES: dict[str, tuple[Write, Callable[[wire.Job], bool]]] = {
    "pause": (lambda c, name: c.pause_job(name, reason="a test"), lambda job: job.state == "paused"),
    "resume": (lambda c, name: c.resume_job(name), lambda job: job.state == "active"),
    "trigger": (lambda c, name: c.trigger(name), lambda job: len(job.last) == 1),
    "edit": (lambda c, name: c.patch_job(name, {"priority": 7}), lambda job: job.spec.priority == 7),
    "batch": (lambda c, name: c.submit([wire.BatchItem(job=name)] * 2), lambda job: len(job.last) == 3),
}


@pytest.mark.requirement(134)
async def test_a_write_is_visible_in_the_next_read(clock: ManualClock, client: AsyncClient, name: str) -> None:
    job_id = (await client.job(name)).job_id
    for what, (write, shows) in WRITES.items():
        for ref in (name, str(job_id)):
            await client.job(ref)
        await write(client, name)
        for ref in (name, str(job_id)):
            assert shows(await client.job(ref)), (what, ref)
    [*_, newest] = sorted((await client.executions(job=name)).items, key=lambda e: e.execution_id)
    assert (await client.execution(newest.execution_id)).state == "queued"
    await client.cancel(newest.execution_id, reason="a test")
    assert (await client.execution(newest.execution_id)).state == "cancelled"
    assert "cancelled" in {e.state for e in (await client.job(name)).last}


async def test_a_write_by_id_shows_in_reads_by_name(clock: ManualClock, client: AsyncClient, name: str) -> None:
    job = await client.job(name)
    await client.history(name)
    await client.pause_job(str(job.job_id).upper(), reason="a test")
    assert (await client.job(name)).state == "paused"


async def test_a_new_name_shows_in_reads_of_executions(clock: ManualClock, client: AsyncClient, name: str) -> None:
    final = await client.cancel((await client.trigger(name)).execution_id, reason="a test")
    live = await client.trigger(name)
    for execution in (final, live):
        assert (await client.execution(execution.execution_id)).job == name
    await client.patch_job(name, {"name": f"{name}-2"})
    for execution in (final, live):
        assert (await client.execution(execution.execution_id)).job == f"{name}-2"
    assert {e.job for e in (await client.history(f"{name}-2")).items} == {f"{name}-2"}


async def test_an_edit_shows_in_reads_of_waiting_executions(clock: ManualClock, client: AsyncClient, name: str) -> None:
    once = f"{name}-once"
    await client.create_job({"name": once, "task": {"kind": "noop"}, "schedule": {"at": "2099-01-01T00:00:00Z"}})
    [waiting] = (await client.history(once)).items
    assert (await client.execution(waiting.execution_id)).state == "waiting"
    await client.patch_job(once, {"schedule": None})
    assert (await client.execution(waiting.execution_id)).state != "waiting"


async def test_deletion_is_visible_and_a_missing_job_is_not_remembered(
    http: httpx2.AsyncClient, clock: ManualClock, client: AsyncClient, name: str
) -> None:
    assert name in {job.name for job in (await client.jobs(prefix=name)).items}
    await client.job(name)
    await client.delete_job(name)
    assert (await http.get(f"/api/v1/jobs/{name}")).status_code == 404
    assert (await client.jobs(prefix=name)).items == []
    await client.create_job({"name": name, "task": {"kind": "noop"}})
    assert (await http.get(f"/api/v1/jobs/{name}")).status_code == 200
    assert name in {job.name for job in (await client.jobs(prefix=name)).items}


async def test_tenants_have_separate_entries(
    clock: ManualClock, client: AsyncClient, neighbour: AsyncClient, name: str
) -> None:
    execution = await client.trigger(name)
    await neighbour.create_job({"name": name, "task": {"kind": "noop"}, "description": "theirs"})
    for _ in range(2):
        assert (await client.job(name)).spec.description == ""
        assert (await neighbour.job(name)).spec.description == "theirs"
        assert [e.execution_id for e in (await client.executions(job=name)).items] == [execution.execution_id]
        assert (await neighbour.executions(job=name)).items == []
        assert (await client.execution(execution.execution_id)).job == name
        with pytest.raises(Exception, match="there is no execution"):
            await neighbour.execution(execution.execution_id)


async def test_the_scope_is_checked_before_the_cache(
    http: httpx2.AsyncClient, clock: ManualClock, cluster: Cluster, issue: Issue, name: str
) -> None:
    path = f"/api/v1/jobs/{name}"
    assert (await http.get(path)).status_code == 200
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {await issue('worker')}"}, 403)):
        async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, headers=headers) as other:
            assert (await other.get(path)).status_code == status


async def test_a_long_poll_is_not_cached_and_ends_what_is(
    clock: ManualClock, cluster: Cluster, client: AsyncClient, name: str
) -> None:
    async with remote(cluster, name=name, queue=name, slots=1) as worker:
        execution = await client.trigger(name)
        [given] = (await worker.poll(free=1)).executions
        assert (await client.execution(execution.execution_id)).state == "running"
        await worker.tell(given)
        assert (await client.wait(execution.execution_id, timeout_s=30)).state == "succeeded"
        assert (await client.execution(execution.execution_id)).state == "succeeded", "time does not go backwards"


async def test_a_change_of_a_worker_reaches_readers_by_the_bus(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.context.reads, "_clock", ManualClock())  # nothing expires
    async with remote(cluster, name=name, queue=name, slots=1) as worker:
        execution = await client.trigger(name)
        [given] = (await worker.poll(free=1)).executions
        path = f"/api/v1/executions/{execution.execution_id}"
        while (await http.get(path)).json()["state"] != "running":
            pass
        await worker.tell(given)
        while (await http.get(path)).json()["state"] != "succeeded":
            pass


@pytest.mark.requirement(134)
async def test_a_client_of_two_api_processes_reads_its_own_writes(postgres: EmbeddedServer, tmp_path: Path) -> None:
    url = await clone(postgres)
    async with Database(url, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="test", scopes=("admin",))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        api_processes(tmp_path, url, 2) as (one, two),
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
    ):
        made = await http.post(f"{one}/api/v1/jobs", json={"name": "report", "task": {"kind": "noop"}})
        assert made.status_code == 201 and made.headers["mainspring-written"]
        for n in range(50):
            for at in (one, two):
                await http.get(f"{at}/api/v1/jobs/report")
            writer, reader = (one, two) if n % 2 else (two, one)
            body = {"priority": n % 11, "description": str(n)}
            changed = await http.patch(f"{writer}/api/v1/jobs/report", json=body)
            seen = {"Mainspring-Seen-After": changed.headers["mainspring-written"]}
            read = await http.get(f"{reader}/api/v1/jobs/report", headers=seen)
            assert read.json()["spec"]["description"] == str(n)
            assert (await http.get(f"{writer}/api/v1/jobs/report")).json()["spec"]["description"] == str(n)

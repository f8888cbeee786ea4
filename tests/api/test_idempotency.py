"""`Idempotency-Key`: every POST that creates something creates it once per key, and repeats its response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from cryptography.exceptions import InvalidTag

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.api.auth import digest, issue_token
from mainspring.api.idempotency import seal, unseal
from mainspring.client import AsyncClient
from mainspring.duties.retention import Retention
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.api_jobs import named, noop, script

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC).replace(microsecond=0)
LATER = (NOW + timedelta(days=400)).isoformat()
END = (NOW + timedelta(days=401)).isoformat()
JOB = "/api/v1/jobs/{ref}"
LETTERS = "/api/v1/dead-letters"
NOOP = {"task": {"kind": "noop"}}
CREATE_NOTHING = [
    "/api/v1/duration-requests/{ref}/decide",
    "/api/v1/duration-requests/{ref}/withdraw",
    "/api/v1/backfills/{backfill_id}/cancel",
    "/api/v1/backfills/{backfill_id}/pause",
    "/api/v1/backfills/{backfill_id}/resume",
    "/api/v1/channels/{name}/enable",
    "/api/v1/channels/{name}/test",
    "/api/v1/dead-letters/{ref}/claim",
    "/api/v1/dead-letters/{ref}/dismiss",
    "/api/v1/dead-letters/{ref}/release",
    "/api/v1/dead-letters:claim",
    "/api/v1/dead-letters:dismiss",
    "/api/v1/executions/{ref}/cancel",
    "/api/v1/jobs/{ref}/force-complete",
    "/api/v1/jobs/{ref}/skip",
    "/api/v1/jobs/{ref}/pause",
    "/api/v1/jobs/{ref}/resume",
    "/api/v1/manifests:diff",
    "/api/v1/schedules:preview",
    "/api/v1/secrets/{name}/rotate",
    "/api/v1/secret-keys/encrypt",
    "/api/v1/secret-keys/rotate",
    "/api/v1/tenants/{name}/suspend",
    "/api/v1/tenants/{name}/resume",
    "/api/v1/triggers/{name}/pause",
    "/api/v1/triggers/{name}/resume",
    "/api/v1/triggers/{name}/rotate",
    "/api/v1/triggers/{name}/test",
    "/api/v1/runs/{run_id}/cancel",
    "/api/v1/runs/{run_id}/events/{name}",
    "/api/v1/runs/{run_id}/steps/{step}/approve",
    "/api/v1/runs/{run_id}/steps/{step}/reject",
    "/api/v1/runs/{run_id}/steps/{step}/skip",
    "/api/v1/runs/{run_id}/steps/{step}/force-complete",
    "/api/v1/workers/{name}/drain",
    "/api/v1/workers/{name}/resume",
    "/api/v1/users/{name}/block",
    "/api/v1/users/{name}/unblock",
]
"""POST routes that only change what exists. A new POST route is added here, or declared with `creates=True`."""


@dataclass
class Case:
    """A request that creates one row in `table`, and another body that the same route accepts."""

    path: str
    body: Any
    other: Any
    table: str
    rows: int = 1


Prepare = Callable[[Cluster, AsyncClient], Awaitable[Case]]
CASES: dict[str, Prepare] = {}


def creates(path: str) -> Callable[[Prepare], Prepare]:
    def declare(prepare: Prepare) -> Prepare:
        CASES[path] = prepare
        return prepare

    return declare


@creates("/api/v1/jobs")
async def _(_: Cluster, __: AsyncClient) -> Case:
    return Case("/api/v1/jobs", noop(), noop(), "jobs")


@creates(JOB + "/dependencies")
async def _(_: Cluster, client: AsyncClient) -> Case:
    parent, other, child = [await client.create_job(noop()) for _ in range(3)]
    path = f"/api/v1/jobs/{child.name}/dependencies"
    return Case(path, {"job": parent.name}, {"job": other.name}, "job_needs")


@creates(JOB + "/trigger")
async def _(_: Cluster, client: AsyncClient) -> Case:
    job = await client.create_job(noop(params={"n": {"type": "integer"}}))
    path = f"/api/v1/jobs/{job.name}/trigger"
    return Case(path, {"params": {"n": 1}, "at": LATER}, {"params": {"n": 2}, "at": LATER}, "executions")


@creates(JOB + "/rollback")
async def _(_: Cluster, client: AsyncClient) -> Case:
    job = await client.create_job(noop())
    await client.patch_job(job.name, {"priority": 7})
    await client.patch_job(job.name, {"priority": 8})
    return Case(f"/api/v1/jobs/{job.name}/rollback", {"version": 1}, {"version": 2}, "job_versions")


@creates(JOB + "/backfill")
async def _(_: Cluster, client: AsyncClient) -> Case:
    job = await client.create_job(noop(schedule={"every": "1h"}, paused=True))
    body = {"from": (NOW - timedelta(hours=5)).isoformat(), "to": NOW.isoformat(), "concurrency": 1}
    return Case(f"/api/v1/jobs/{job.name}/backfill", body, {**body, "concurrency": 2}, "backfills")


@creates("/api/v1/tokens")
async def _(_: Cluster, __: AsyncClient) -> Case:
    return Case("/api/v1/tokens", {"name": "one", "role": "viewer"}, {"name": "two", "role": "viewer"}, "tokens")


@creates("/api/v1/tokens/{ref}/rotate")
async def _(_: Cluster, client: AsyncClient) -> Case:
    issued = await client.issue_token(wire.NewToken(name="old", role="viewer"))
    return Case(f"/api/v1/tokens/{issued.token_id}/rotate", {"overlap": "1h"}, {"overlap": "2h"}, "tokens")


@creates("/api/v1/users")
async def _(_: Cluster, __: AsyncClient) -> Case:
    one, two = ({"name": f"user-{uuid4()}", "role": "viewer"} for _ in range(2))
    return Case("/api/v1/users", one, two, "principals")


@creates("/api/v1/tenants")
async def _(_: Cluster, __: AsyncClient) -> Case:
    one, two = ({"name": f"tenant-{uuid4()}"} for _ in range(2))
    return Case("/api/v1/tenants", one, two, "tenants")


@creates("/api/v1/tenants/{name}/tokens")
async def _(_: Cluster, client: AsyncClient) -> Case:
    tenant = await client.create_tenant(wire.NewTenant(name=f"tenant-{uuid4()}"))
    body = {"name": "first", "role": "admin"}
    return Case(f"/api/v1/tenants/{tenant.name}/tokens", body, {**body, "name": "second"}, "tokens")


@creates("/api/v1/triggers")
async def _(_: Cluster, client: AsyncClient) -> Case:
    after, job = [await client.create_job(noop()) for _ in range(2)]
    spec = {"job": job.name, "source": {"kind": "completion", "after": after.name}}
    one, two = ({"name": f"trigger-{uuid4()}", **spec} for _ in range(2))
    return Case("/api/v1/triggers", one, two, "triggers")


@creates("/api/v1/blackouts")
async def _(_: Cluster, __: AsyncClient) -> Case:
    body = {"start_at": LATER, "end_at": END, "reason": "a"}
    return Case("/api/v1/blackouts", body, {**body, "reason": "b"}, "blackouts")


@creates("/api/v1/silences")
async def _(_: Cluster, __: AsyncClient) -> Case:
    body = {"matchers": {"job": "none"}, "end_at": END, "reason": "a"}
    return Case("/api/v1/silences", body, {**body, "reason": "b"}, "silences")


@creates("/api/v1/channels")
async def _(_: Cluster, __: AsyncClient) -> Case:
    body = {"name": f"c-{uuid4().hex[:8]}", "target": {"kind": "webhook", "url": "https://example.com/"}}
    return Case("/api/v1/channels", body, {**body, "name": f"c-{uuid4().hex[:8]}"}, "channels")


@creates("/api/v1/reservations")
async def _(_: Cluster, __: AsyncClient) -> Case:
    body = {"name": f"r-{uuid4().hex[:8]}", "start_at": LATER, "end_at": END, "anyway": True}
    return Case("/api/v1/reservations", body, {**body, "slots": 2}, "reservations")


@creates("/api/v1/duration-requests")
async def _(_: Cluster, client: AsyncClient) -> Case:
    queue = f"q{uuid4().hex[:8]}"
    await client.set_queue(queue, {"max_duration_s": 60})
    body = {"job": f"j-{uuid4().hex[:8]}", "queue": queue, "timeout": "2h", "reason": "r"}
    return Case("/api/v1/duration-requests", body, {**body, "timeout": "3h"}, "duration_requests")


@creates("/api/v1/worker-tokens")
async def _(_: Cluster, __: AsyncClient) -> Case:
    body = {"name": f"t-{uuid4().hex[:8]}", "queues": ["short"]}
    return Case("/api/v1/worker-tokens", body, {**body, "queues": ["long"]}, "tokens")


@creates("/api/v1/login-links")
async def _(_: Cluster, __: AsyncClient) -> Case:
    return Case("/api/v1/login-links", None, None, "login_links")


@creates("/api/v1/workflows")
async def _(_: Cluster, __: AsyncClient) -> Case:
    return Case("/api/v1/workflows", _workflow(), _workflow(), "workflow_versions")


@creates("/api/v1/workflows/{ref}/run")
async def _(_: Cluster, client: AsyncClient) -> Case:
    made = await client.apply_workflow(_workflow())
    return Case(f"/api/v1/workflows/{made.name}/run", {}, {"reason": "again"}, "runs")


@creates("/api/v1/workflows/{ref}/rollback")
async def _(_: Cluster, client: AsyncClient) -> Case:
    spec = _workflow()
    for description in "ab":
        await client.apply_workflow({**spec, "description": description})
    path = f"/api/v1/workflows/{spec['name']}/rollback"
    return Case(path, {"version": 1}, {"version": 2}, "workflow_versions")


@creates("/api/v1/manifests:apply")
async def _(_: Cluster, __: AsyncClient) -> Case:
    def apply(name: str) -> dict[str, Any]:
        return {"manifests": [{"kind": "Job", "metadata": {"name": name}, "spec": NOOP}]}

    names = [f"m-{uuid4().hex[:8]}" for _ in range(2)]
    return Case("/api/v1/manifests:apply", apply(names[0]), apply(names[1]), "jobs")


@creates("/api/v1/executions:batch")
async def _(_: Cluster, client: AsyncClient) -> Case:
    job = await client.create_job(noop())
    items = [{"job": job.name, "at": LATER}, {"job": job.name, "at": LATER, "key": "k"}]
    return Case("/api/v1/executions:batch", {"items": items}, {"items": items[:1]}, "executions", rows=2)


@creates("/api/v1/executions/{ref}/requeue")
async def _(cluster: Cluster, client: AsyncClient) -> Case:
    job = await client.create_job(noop())
    async with cluster.worker():
        done = await client.wait((await client.trigger(job.name)).execution_id)
    path = f"/api/v1/executions/{done.execution_id}/requeue"
    return Case(path, {"reason": "a"}, {"reason": "b"}, "executions")


@creates("/api/v1/runs/{run_id}/rerun")
async def _(cluster: Cluster, client: AsyncClient) -> Case:
    made = await client.apply_workflow(_workflow())
    async with cluster.worker():
        run = await client.start_run(made.name)
        await client.wait(run.run_id)
    return Case(f"/api/v1/runs/{run.run_id}/rerun", {"from_step": "a"}, {"from_step": "b"}, "runs")


@creates(LETTERS + "/{ref}/replay")
async def _(cluster: Cluster, client: AsyncClient) -> Case:
    return Case(f"{LETTERS}/{await _letter(cluster, client)}/replay", {}, {"params": {}}, "executions")


@creates(LETTERS + ":replay")
async def _(cluster: Cluster, client: AsyncClient) -> Case:
    letter = str(await _letter(cluster, client))
    return Case(f"{LETTERS}:replay", {"ids": [letter]}, {"ids": [letter], "dry_run": True}, "executions")


def _workflow() -> dict[str, Any]:
    return {"name": f"w-{uuid4().hex[:8]}", "steps": {"a": NOOP, "b": {**NOOP, "needs": ["a"]}}}


async def _letter(cluster: Cluster, client: AsyncClient) -> Any:
    job = await client.create_job(script("exit 3"))
    async with cluster.worker():
        return (await client.wait((await client.trigger(job.name)).execution_id)).execution_id


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))


def key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid4())}


def test_every_post_that_creates_has_a_case() -> None:
    posts = {e.path: e.creates for e in endpoints() if e.method == "POST" and e.scope != "worker"}
    assert {path for path, flagged in posts.items() if flagged} == set(CASES)
    assert {path for path, flagged in posts.items() if not flagged} == set(CREATE_NOTHING)
    assert not [e.path for e in endpoints() if e.creates and (e.method != "POST" or e.cached or e.scope == "worker")]


@pytest.mark.parametrize("path", sorted(CASES))
async def test_one_key_creates_once_and_repeats_the_response(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient, path: str
) -> None:
    case = await CASES[path](cluster, client)
    before, headers = await count(cluster.database, case.table), key()
    answers = await asyncio.gather(*(http.post(case.path, json=case.body, headers=headers) for _ in range(6)))
    answers.append(await http.post(case.path, json=case.body, headers=headers))
    assert {a.status_code for a in answers} <= {200, 201}, answers[0].text
    assert len({(a.status_code, a.content, a.headers.get("location"), a.headers.get("etag")) for a in answers}) == 1
    assert [a.headers.get("idempotent-replayed") for a in answers].count(None) == 1
    assert await count(cluster.database, case.table) == before + case.rows
    if case.other is not None:
        other = await http.post(case.path, json=case.other, headers=headers)
        assert (other.status_code, other.json()["code"]) == (409, "key_reused")
        assert other.json()["errors"][0]["pointer"] == "/Idempotency-Key" and other.json()["errors"][0]["hint"]
        assert await count(cluster.database, case.table) == before + case.rows


async def test_the_order_of_keys_and_white_space_do_not_count(http: httpx2.AsyncClient) -> None:
    name, headers = f"job-{uuid4()}", key()
    bodies = (
        f'{{"name": "{name}", "task": {{"kind": "noop"}}, "labels": {{"a": "1", "b": "2"}}}}',
        f'{{"labels": {{"b":"2","a":"1"}},"task":{{"kind":"noop"}},"name":"{name}"}}',
    )
    first, second = [await http.post("/api/v1/jobs", content=body, headers=headers) for body in bodies]
    assert (first.status_code, first.content) == (second.status_code, second.content)


@pytest.mark.parametrize("bad", [b"", b"x" * 256, b"two words", "naïve".encode(), b"a,b\tc"])
async def test_a_key_is_short_and_visible_ascii(http: httpx2.AsyncClient, bad: bytes) -> None:
    answer = await http.post("/api/v1/jobs", json=noop(), headers={b"Idempotency-Key": bad})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_idempotency_key")
    assert (
        await http.post("/api/v1/jobs", json=noop(), headers={"Idempotency-Key": str(uuid4()).ljust(255, "~")})
    ).status_code == 201


async def test_a_request_that_failed_leaves_no_key(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    job, headers = noop(), key()
    (await http.post("/api/v1/jobs", json=job)).raise_for_status()
    before = await count(cluster.database, "request_keys")
    refused = await http.post("/api/v1/jobs", json=job, headers=headers)
    assert refused.status_code == 409 and "idempotent-replayed" not in refused.headers
    assert await count(cluster.database, "request_keys") == before
    (await http.delete(f"/api/v1/jobs/{job['name']}")).raise_for_status()
    assert (await http.post("/api/v1/jobs", json=job, headers=headers)).status_code == 201


async def test_a_key_belongs_to_a_token_and_a_path(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    one, two = await client.create_job(noop()), await client.create_job(noop())
    headers = key()
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="other", scopes=("write",))
    theirs = {**headers, "Authorization": f"Bearer {token}"}
    made = [
        (await http.post(f"/api/v1/jobs/{name}/trigger", json={"at": LATER}, headers=sent)).json()["execution_id"]
        for name, sent in ((one.name, headers), (two.name, headers), (one.name, theirs), (one.name, headers))
    ]
    assert len(set(made)) == 3 and made[0] == made[3]


async def test_two_api_processes_create_once(cluster: Cluster, database_url: str, http: httpx2.AsyncClient) -> None:
    headers = {**key(), "Authorization": f"Bearer {cluster.token}"}
    job = noop()
    async with started(database_url, roles=("api",)) as second:
        urls = [f"{url}/api/v1/jobs" for url in (cluster.url, second.url)] * 4
        answers = await asyncio.gather(*(http.post(url, json=job, headers=headers) for url in urls))
    assert {a.status_code for a in answers} == {201}
    assert len({a.content for a in answers}) == 1
    assert [a.headers.get("idempotent-replayed") for a in answers].count(None) == 1


async def test_more_keys_than_connections(http: httpx2.AsyncClient) -> None:
    """Requests that wait for a key leave database connections to the request they wait for."""
    jobs = [(named(schedule={"every": "1h"}), key()) for _ in range(8)]
    answers = await asyncio.gather(
        *(http.post("/api/v1/jobs", json=job, headers=headers) for job, headers in jobs for _ in range(6))
    )
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["job_id"] for a in answers}) == len(jobs)


async def test_an_execution_is_announced_after_the_commit(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    job = await client.create_job(noop())
    async with cluster.worker():
        made = await http.post(f"/api/v1/jobs/{job.name}/trigger", headers=key())
        done = await client.wait(made.json()["execution_id"], timeout_s=30)
    assert done.state == "succeeded"


async def test_a_key_is_kept_for_a_day(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    first, second = key(), key()
    for headers in (first, second):
        (await http.post("/api/v1/jobs", json=noop(), headers=headers)).raise_for_status()
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE request_keys SET created_at = created_at - interval '23 hours'")
    assert (await http.post("/api/v1/jobs", json=noop(), headers=first)).json()["code"] == "key_reused"
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE request_keys SET created_at = created_at - interval '1 hour'")
    assert (await http.post("/api/v1/jobs", json=noop(), headers=first)).status_code == 201, "also before retention"
    await Retention(cluster.database, leads=lambda: True).run_once()
    assert await count(cluster.database, "request_keys") == 1, "the one that was used again"


async def test_stored_responses_contain_no_secret(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    name = f"t-{uuid4().hex[:8]}"
    body = {"name": name, "queues": ["short"]}
    token = (await http.post("/api/v1/worker-tokens", json=body, headers=key())).json()["token"]
    async with cluster.database.connection() as connection:
        rows = await connection.fetch("SELECT body FROM request_keys ORDER BY created_at DESC LIMIT 1")
        assert await connection.fetchval("SELECT count(*) FROM tokens WHERE digest = $1", digest(token)) == 1
    assert token.encode() in unseal(rows[0]["body"], cluster.token.encode())
    assert token.encode() not in rows[0]["body"] and name.encode() not in rows[0]["body"]


def test_sealing() -> None:
    for body in (b"", b"\x00\x00", b"\x00{}\x00", b"x" * 5000):
        assert unseal(seal(body, b"token"), b"token") == body
    assert seal(b"same", b"token") != seal(b"same", b"token")
    with pytest.raises(InvalidTag):
        unseal(seal(b"secret", b"token"), b"other")


async def test_the_quota_of_schedules_is_charged_once(cluster: Cluster) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="few", scopes=("write", "read"), schedule_quota=2)
    async with (
        AsyncClient(cluster.url, token) as client,
        httpx2.AsyncClient(
            base_url=cluster.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30
        ) as http,
    ):
        for _ in range(2):
            job, headers = noop(schedule={"every": "1h"}), key()
            for _ in range(3):
                assert (await http.post("/api/v1/jobs", json=job, headers=headers)).status_code == 201
        refused = await http.post("/api/v1/jobs", json=noop(schedule={"every": "1h"}), headers=key())
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_used_up")
        assert isinstance(await client.create_job(noop()), wire.Job)

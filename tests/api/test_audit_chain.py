"""The audit log over HTTP: verified, exported, with its origin; refused requests and sign-ins are in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Forbidden, Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.duties.audit_chain import chain_pending, send_heads, sign_heads
from mainspring.intake.audit_bursts import MOST_KINDS, SEVERAL, AuditBursts, Occurrence
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.api_tokens import Issue
from tests.support.clocks import ManualClock
from tests.support.http_receiver import receiving, reply
from tests.support.pages import NAVIGATION, open_page, sign_in
from tests.support.processes import until, until_async
from tests.views.test_audit_verification import as_owner, sql

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, allow_net=("127.0.0.0/8",)) as cluster:
        yield cluster


async def entries(client: AsyncClient, action: str, count: int = 1, **more: object) -> list[wire.AuditEntry]:
    """The newest entries of an action, once there are so many."""
    found: list[wire.AuditEntry] = []

    async def listed() -> bool:
        nonlocal found
        found = (await client.audit(action=action, limit=100, **more)).items  # type: ignore[arg-type]
        return len(found) >= count

    await until_async(f"{count} entries {action}", listed, within_s=60)
    return found


async def chained(cluster: Cluster) -> None:
    await chain_pending(cluster.database)
    await sign_heads(cluster.database, cluster.context.vault)


@pytest.mark.requirement(135)
async def test_the_leader_chains_and_signs_and_an_outsider_verifies_the_export(
    cluster: Cluster, client: AsyncClient
) -> None:
    await client.create_job(JobSpec(name="one", task=NoopTask()))
    await client.pause_job("one", "known")

    async def is_chained() -> bool:
        found = await client.verify_audit()
        return found.unchained == 0 and found.entries >= 2

    await until_async("the chain", is_chained, within_s=60)  # by the leader itself
    await chained(cluster)
    found = await client.verify_audit()
    assert found.intact and found.problem is None and found.signed_at is not None
    assert (await client.audit(action="job.pause")).items[0].seq is not None
    chunks = [chunk async for chunk in client.export_audit()]
    lines = [json.loads(line) for line in b"".join(chunks).splitlines()]
    heads = [line["head"] for line in lines if "head" in line]
    hashes = {0: "0" * 64}
    for line in (line for line in lines if "head" not in line):
        claimed = line.pop("hash")
        text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == claimed and line["previous"] == hashes[line["seq"] - 1]
        hashes[line["seq"]] = claimed
    head = heads[-1]
    assert head["hash"] == hashes[head["seq"]]
    signed = f"mainspring audit head 1 {head['seq']} {head['hash']}".encode()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(head["public_key"])).verify(
        bytes.fromhex(head["signature"]), signed
    )


async def test_an_entry_says_which_request_from_where(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    body = {"name": "origin", "task": {"kind": "noop"}}
    answer = await http.post("/api/v1/jobs", json=body, headers={"X-Request-Id": "proxy-17"})
    assert answer.headers["x-request-id"] == "proxy-17"
    other = await http.post("/api/v1/jobs/origin/pause", json={"reason": "x"}, headers={"X-Request-Id": "no good id"})
    (paused, created) = (await http.get("/api/v1/audit", params={"subject": "origin"})).json()["items"]
    assert (created["request_id"], created["source"]) == ("proxy-17", "127.0.0.1")
    assert paused["request_id"] == other.headers["x-request-id"] and len(paused["request_id"]) == 32


async def test_a_user_is_named_by_id(cluster: Cluster, client: AsyncClient) -> None:
    user = await client.create_user(wire.NewUser(name="ann", role="operator"))
    issued = await client.issue_token(wire.NewToken(name="laptop", user="ann"))
    async with AsyncClient(cluster.url, issued.token) as ann:
        await ann.create_job(JobSpec(name="of-ann", task=NoopTask()))
    (created,) = (await client.audit(subject="of-ann")).items
    assert (created.actor_id, created.principal_id) == (issued.token_id, user.user_id)


async def test_denied_requests_and_sign_ins_are_recorded(cluster: Cluster, client: AsyncClient, issue: Issue) -> None:
    viewer = await issue("read")
    async with AsyncClient(cluster.url, viewer) as reader:
        for _ in range(3):
            with pytest.raises(Forbidden):
                await reader.pause_job("one", "let me")
    (denied,) = await entries(client, "request.deny")
    assert denied.subject == "POST /api/v1/jobs/{ref}/pause" and denied.source == "127.0.0.1"
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        assert (await sign_in(browser, "ms_wrong-and-secret")).status_code == 401
        await sign_in(browser, viewer)
        assert (await browser.get("/audit")).status_code == 403
        page = await open_page(browser, "/settings")
        assert (await browser.post("/logout", data={"csrf": page.csrf})).status_code == 303
    assert len(await entries(client, "browser_session.begin")) == 1
    assert len(await entries(client, "browser_session.end")) == 1
    assert {e.subject for e in await entries(client, "request.deny", 2)} >= {"GET /audit"}
    failed = await entries(client, "login.fail", cluster=True)
    assert failed[0].subject == "127.0.0.1" and failed[0].details == {"route": "POST /login"}
    assert "wrong-and-secret" not in str(failed)


async def test_a_wrong_token_is_a_failed_sign_in_of_the_cluster(cluster: Cluster, client: AsyncClient) -> None:
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as stranger:
        assert (await stranger.get("/api/v1/jobs", headers={"Authorization": "Bearer ms_no"})).status_code == 401
        assert (await stranger.get("/api/v1/jobs")).status_code == 401
    assert (await client.audit(action="login.fail")).items == [], "not of a tenant"
    assert await entries(client, "login.fail", cluster=True)
    found = await client.verify_audit(cluster=True)
    assert found.intact


async def test_only_cluster_administrators_read_the_log_of_the_cluster(neighbour: AsyncClient) -> None:
    for attempt in (neighbour.audit(cluster=True), neighbour.verify_audit(cluster=True)):
        with pytest.raises(Forbidden, match="cluster administrators"):
            await attempt
    assert (await neighbour.verify_audit()).intact
    for wrong in (neighbour.verify_audit(head="x"), neighbour.verify_audit(cursor="entry:x")):
        with pytest.raises(Invalid):
            await wrong


async def test_a_flood_is_counted(fresh: Database) -> None:
    """Two entries a minute of each kind, and a bounded number of kinds."""
    clock = ManualClock()
    bursts = AuditBursts(fresh, clock=clock)
    for n in range(2000):
        bursts.note(Occurrence(1, "request.deny", "ann", "GET /a"))
        bursts.note(Occurrence(1, "request.deny", "ann", f"GET /{n}"))
        bursts.note(Occurrence(0, "login.fail", "anonymous", "192.0.2.1"))
    await bursts.write()
    clock.at += 61
    bursts.note(Occurrence(1, "request.deny", "ann", "GET /a"))
    await bursts.write()
    async with fresh.connection() as connection:
        rows = await connection.fetch("SELECT tenant_id, subject, details ->> 'repeated' AS n FROM audit")
    assert len(rows) <= 2 * MOST_KINDS + 5
    assert [r["n"] for r in rows if r["subject"] == "GET /a"] == [None, "1999", None]
    assert [r["n"] for r in rows if r["tenant_id"] == 0] == [None, "1999"]
    several = [int(r["n"] or 1) for r in rows if r["subject"] == SEVERAL]
    assert sum(several) == 2000 - (MOST_KINDS - 1)


async def test_uses_of_secrets_beyond_a_limit_are_counted(fresh: Database) -> None:
    clock = ManualClock()
    bursts = AuditBursts(fresh, clock=clock)
    assert [bursts.admits("job", most=2) for _ in range(3)] == [True, True, False]
    clock.at += 61
    assert bursts.admits("job", most=2)


async def test_heads_go_to_a_channel_as_a_witness(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    async with receiving(lambda _: reply()) as receiver:
        target = {"kind": "webhook", "url": receiver.url()}
        await http.post("/api/v1/channels", json={"name": "witness", "target": target, "events": ["audit.head"]})
        await chained(cluster)
        assert await send_heads(cluster.database, cluster.context.vault) >= 1
        assert await send_heads(cluster.database, cluster.context.vault) == 0, "once an hour"

        def sent() -> list[Any]:
            heads = [json.loads(got.body)["data"] for got in receiver.got]
            return [head for head in heads if head["tenant"] == 1]

        await until("the head", lambda: bool(sent()), within_s=60)
        own = sent()[0]
        assert (await client.verify_audit(head=f"{own['seq']}:{own['hash']}")).intact
        wrong = await client.verify_audit(head=f"{own['seq']}:{'0' * 64}")
        assert wrong.problem is not None and wrong.problem.kind == "rewritten"


async def test_the_doctor_finds_a_broken_chain(cluster: Cluster, client: AsyncClient) -> None:
    await client.create_job(JobSpec(name="checked", task=NoopTask()))
    await chained(cluster)
    healthy = await client.doctor()
    assert healthy.checks["I19 the hash chains of the audit log are unbroken"] == "ok", healthy.findings
    entry = "(SELECT max(audit_id) FROM audit_chain WHERE tenant_id = 1)"
    await as_owner(cluster.database, sql(f"UPDATE audit SET actor = 'ben' WHERE audit_id = {entry}"))
    found = await client.doctor()
    assert not found.healthy and any("content that was chained" in f.what for f in found.findings)
    await as_owner(cluster.database, sql(f"DELETE FROM audit WHERE audit_id = {entry}"))
    assert any("does not exist" in f.what for f in (await client.doctor()).findings)

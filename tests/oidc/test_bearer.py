"""JWTs of an issuer as bearer tokens: who they stand for, what they may do, and when they end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api import auth as auth_module
from mainspring.api import federated as federated_module
from mainspring.api.auth import TOKEN_CACHE_S, digest
from mainspring.api.federated import CALLBACK
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Unauthenticated
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.oidc import jwt
from mainspring.store.queries import q
from tests.conftest import Cluster, started
from tests.oidc.conftest import auth_of, bearer, issuer_of
from tests.support.oidc_issuer import Provider, provider
from tests.support.processes import until_async
from tests.support.statements import listen

pytestmark = pytest.mark.anyio
PATIENCE_S = 60.0


@contextlib.asynccontextmanager
async def client_of(cluster: Cluster, token: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, token) as client:
        yield client


async def test_a_jwt_is_a_user_of_the_tenant_with_the_role_of_its_claims(federated: Cluster, issuer: Provider) -> None:
    token = await issuer.mint(sub="bob", groups=["others", "operators", "staff"], name="Bob", preferred_username="bob")
    async with client_of(federated, token) as client:
        caller = await client.whoami()
        assert (caller.tenant, caller.role, caller.scopes) == ("default", "operator", ["operate", "read", "write"])
        job = await client.create_job(JobSpec(name="of-bob", task=NoopTask()))
    async with federated.client() as admin:
        user = next(u for u in (await admin.users(limit=500)).items if u.user_id == caller.user_id)
        assert (user.display_name, user.role, user.issuer, user.blocked_at) == ("Bob", "operator", issuer.url, None)
        assert user.name.startswith("bob-") and user.last_used_at is not None
        entries = (await admin.audit(subject=str(job.job_id))).items
        assert entries[0].actor == f"{user.name}/corp" or entries[0].actor.startswith(f"{user.name}/corp [")
        created = (await admin.audit(subject=str(user.user_id))).items
        assert [(e.action, e.actor) for e in created] == [("user.create", "issuer corp")]


async def test_a_subject_keeps_its_id_with_another_token_and_role(federated: Cluster, issuer: Provider) -> None:
    seen = set()
    for groups in (["staff"], ["submitters"], ["staff"]):
        async with client_of(federated, await issuer.mint(sub="carol", groups=groups)) as client:
            caller = await client.whoami()
            assert caller.role == {"staff": "viewer", "submitters": "submitter"}[groups[0]]
            seen.add(caller.user_id)
    assert len(seen) == 1


async def test_a_token_that_a_subject_has_issued_does_not_approve_for_it(federated: Cluster, issuer: Provider) -> None:
    gate = f"gate-{uuid4()}"
    minted = [await issuer.mint(sub=sub, groups=["admins"]) for sub in ("ines", "otto")]
    async with federated.client() as author, client_of(federated, minted[0]) as ines:
        await author.apply_workflow({"name": gate, "steps": {"sign": {"approval": {}}}})
        name = f"ben-{uuid4().hex[:8]}"
        await ines.create_user(wire.NewUser(name=name, role="operator"))
        issued = await ines.issue_token(wire.NewToken(name="laptop", user=name))
        run_id = (await ines.start_run(gate)).run_id
        async with client_of(federated, issued.token) as ben:
            with pytest.raises(Forbidden) as refused:
                await ben.decide(run_id, "sign", approved=True)
        assert refused.value.code == "self_approval"
        async with client_of(federated, minted[1]) as otto:
            assert (await otto.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_groups_of_a_claim_decide_about_gates(database_url: str, issuer: Provider) -> None:
    configured = issuer_of(issuer, **{"groups-claim": "realm.groups"})
    gate = {"sign": {"approval": {"groups": ["/release"]}}}
    async with started(database_url, issuers=(configured,), rate_limit=0) as cluster, cluster.client() as admin:
        name = f"gate-{uuid4()}"
        await admin.apply_workflow({"name": name, "steps": gate})
        run_id = (await admin.start_run(name)).run_id
        claims: dict[str, Any] = {"sub": "olga", "groups": ["operators"]}
        member = await issuer.mint(**claims, realm={"groups": ["/release", "two\nlines", 7, "/release"]})
        former = await issuer.mint(**claims, realm={"groups": ["release", "/RELEASE"]})
        other = await issuer.mint(sub="olga", groups=["operators", "/release"])
        async with client_of(cluster, member) as client:
            assert (await client.whoami()).groups == ["/release"]
        for token in (former, other):  # of the same user; its groups are those of its own claims
            async with client_of(cluster, token) as client:
                with pytest.raises(Forbidden) as refused:
                    await client.decide(run_id, "sign", approved=True)
                assert refused.value.code == "not_approver"
        async with client_of(cluster, member) as client:
            assert (await client.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_a_token_without_a_mapped_role_or_tenant_is_refused(
    federated: Cluster, issuer: Provider, http: httpx2.AsyncClient
) -> None:
    for groups in ([], ["strangers"], "strangers", {"staff": True}, None):
        answer = await http.get("/api/v1/jobs", headers=bearer(await issuer.mint(sub="dora", groups=groups)))
        assert (answer.status_code, answer.json()["code"]) == (403, "not_mapped"), groups
    async with federated.client() as admin:
        assert not [u for u in (await admin.users(limit=500)).items if u.name.startswith("dora")]


async def test_the_tenant_comes_from_a_claim_and_no_other_can_be_reached(
    federated: Cluster, issuer: Provider, database_url: str
) -> None:
    async with federated.client() as admin:
        name = f"second-{uuid4().hex[:8]}"
        await admin.create_tenant(wire.NewTenant(name=name))
    mapped: dict[str, Any] = {"tenant-claim": "org.id", "tenants": {"O2": name, "O3": "missing"}}
    configured = issuer_of(issuer, tenant=None, **mapped)
    async with started(database_url, issuers=(configured,), rate_limit=0, roles=("api",)) as cluster:
        async with client_of(cluster, await issuer.mint(sub="erin", org={"id": "O2"}, groups=["staff"])) as client:
            assert (await client.whoami()).tenant == name
            assert (await client.jobs()).items == []
        for org in ({"id": "O1"}, {"id": "O3"}, {"id": "default"}, None):
            async with client_of(cluster, await issuer.mint(sub="erin", org=org, groups=["staff"])) as client:
                with pytest.raises(Forbidden):
                    await client.whoami()


async def test_a_blocked_subject_is_refused_at_once_and_its_streams_end(federated: Cluster, issuer: Provider) -> None:
    token = await issuer.mint(sub="frank")
    async with federated.client() as admin, httpx2.AsyncClient(base_url=federated.url, trust_env=False) as http:
        async with client_of(federated, token) as client:
            caller = await client.whoami()
        user = next(u for u in (await admin.users(limit=500)).items if u.user_id == caller.user_id)
        async with http.stream("GET", "/api/v1/stream", headers=bearer(token), timeout=PATIENCE_S) as stream:
            assert stream.status_code == 200
            await admin.block_user(user.name)
            async with asyncio.timeout(PATIENCE_S):
                async for _ in stream.aiter_raw():
                    pass
        for same in (token, await issuer.mint(sub="frank"), await issuer.mint(sub="frank", groups=["admins"])):
            answer = await http.get("/api/v1/jobs", headers=bearer(same))
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert (await http.get("/api/v1/jobs", headers=bearer(await issuer.mint(sub="grace")))).status_code == 200
        assert (await admin.unblock_user(user.name)).blocked_at is None
        assert (await http.get("/api/v1/jobs", headers=bearer(token))).status_code == 200
        actions = [entry.action for entry in (await admin.audit(subject=str(user.user_id))).items]
        assert actions == ["user.unblock", "user.block", "user.create"]


async def test_a_block_reaches_other_api_processes(
    federated: Cluster, issuer: Provider, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (auth_module, federated_module):  # so that only the message can end it
        monkeypatch.setattr(module, "TOKEN_CACHE_S", 3600.0)
    configured = issuer_of(issuer)
    async with started(database_url, issuers=(configured,), rate_limit=0, roles=("api",)) as other:
        token = await issuer.mint(sub="heidi")
        async with client_of(other, token) as client, federated.client() as admin:
            caller = await client.whoami()
            user = next(u for u in (await admin.users(limit=500)).items if u.user_id == caller.user_id)
            await admin.block_user(user.name)

            async def is_refused() -> bool:
                try:
                    await client.whoami()
                except Unauthenticated:
                    return True
                return False

            await until_async("the other process refuses", is_refused, within_s=PATIENCE_S)


async def test_a_user_of_an_issuer_has_no_other_tokens_and_cannot_be_changed(
    federated: Cluster, issuer: Provider
) -> None:
    async with client_of(federated, await issuer.mint(sub="ivan", groups=["admins"])) as client:
        caller = await client.whoami()
    async with federated.client() as admin:
        user = next(u for u in (await admin.users(limit=500)).items if u.user_id == caller.user_id)
        for attempt in (
            admin.issue_token(wire.NewToken(name="x", user=user.name)),
            admin.change_user(user.name, wire.UserChange(role="viewer")),
            admin.delete_user(user.name),
            admin.rotate_token(caller.token_id),
        ):
            with pytest.raises(Conflict) as refused:
                await attempt
            assert refused.value.code == "user_of_issuer"


async def test_a_jwt_opens_no_browser_session_and_no_login_link(federated: Cluster, issuer: Provider) -> None:
    """Both would outlast it."""
    token = await issuer.mint(sub="judy", groups=["admins"])
    async with client_of(federated, token) as client:
        with pytest.raises(Forbidden):
            await client.login_link()
    with pytest.raises(Unauthenticated):
        await auth_of(federated).cookie_for_token(token)


async def test_a_stream_ends_when_its_jwt_expires(database_url: str, issuer: Provider) -> None:
    configured = issuer_of(issuer, **{"clock-skew": "0s"})
    async with started(database_url, issuers=(configured,), rate_limit=0, roles=("api",)) as cluster:
        token = await issuer.mint(sub="mallory", exp=time.time() + 10)
        async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=PATIENCE_S) as http:
            async with http.stream("GET", "/api/v1/stream", headers=bearer(token)) as stream:
                assert stream.status_code == 200
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in stream.aiter_raw():
                        pass
            assert (await http.get("/api/v1/jobs", headers=bearer(token))).status_code == 401


async def test_a_remembered_jwt_is_never_used_after_its_end(federated: Cluster, issuer: Provider) -> None:
    auth = auth_of(federated)

    async def remembered_s(token: str) -> float:
        """For how long a token is used without looking at it again."""
        await auth.by_token(token)
        return TOKEN_CACHE_S - (auth._clock.monotonic() - auth._known[digest(token)][1])

    assert 0 < await remembered_s(await issuer.mint(sub="niaj")) <= TOKEN_CACHE_S
    assert await remembered_s(await issuer.mint(sub="niaj", exp=time.time() + 1)) <= 1
    assert await remembered_s(await issuer.mint(sub="niaj", exp=time.time() - 5)) < 0, "within the clock skew"


async def test_a_repeated_request_gets_its_first_response_with_a_renewed_jwt(
    federated: Cluster, issuer: Provider, http: httpx2.AsyncClient
) -> None:
    key = {"Idempotency-Key": f"key-{uuid4()}"}
    body = {"name": f"once-{uuid4().hex[:8]}", "task": {"kind": "noop"}}
    answers = []
    for at in (0, 1):
        token = await issuer.mint(sub="olivia", groups=["submitters"], jti=str(at))
        answers.append(await http.post("/api/v1/jobs", json=body, headers={**bearer(token), **key}))
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()


async def test_wrong_jwts_count_against_their_address(database_url: str, issuer: Provider) -> None:
    async with started(database_url, issuers=(issuer_of(issuer),), roles=("api",)) as cluster:
        good, bad = await issuer.mint(sub="peggy"), await issuer.mint(aud="another")
        async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as http:
            assert (await http.get("/api/v1/jobs", headers=bearer(good))).status_code == 200
            statuses = [(await http.get("/api/v1/jobs", headers=bearer(bad))).status_code for _ in range(60)]
            assert statuses[0] == 401 and 429 in statuses
            assert (await http.get("/api/v1/jobs", headers=bearer(good))).status_code == 200, "it is known to be valid"


async def test_tokens_of_this_server_take_their_own_path(
    federated: Cluster, issuer: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verification, no request to the issuer, and the same single query as without issuers."""
    auth = auth_of(federated)
    before = await issuer.count("/jwks")
    auth.expire_all()
    asked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(jwt, "read", None)
        listen(federated.database, "connection", lambda statement: asked.append(statement.query), patch)
        await auth.by_token(federated.token)
        await auth.by_token(federated.token)
    assert asked == [q("token_by_digest")] or asked == [q("token_by_digest"), q("use_token")]
    assert await issuer.count("/jwks") == before


async def test_the_callback_is_not_a_way_in(http: httpx2.AsyncClient) -> None:
    for query in ("", "?code=x&state=y", "?error=access_denied"):
        assert (await http.get(f"{CALLBACK}{query}")).status_code == 401


async def test_an_issuer_that_is_away_is_not_the_callers_fault(database_url: str) -> None:
    async with provider() as gone:
        configured = issuer_of(gone)
        token = await gone.mint(groups=["staff"])
    async with (
        started(database_url, issuers=(configured,), rate_limit=0, roles=("api",)) as cluster,
        httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as http,
    ):
        answer = await http.get("/api/v1/jobs", headers=bearer(token))
        assert (answer.status_code, answer.json()["code"]) == (503, "issuer_unavailable")
        assert (await http.get("/api/v1/jobs", headers=bearer(cluster.token))).status_code == 200


async def test_another_role_is_no_second_person(federated: Cluster, issuer: Provider) -> None:
    """Approvals need another person than the one who started the run: all roles of a subject are recorded as one."""
    names = set()
    for groups in (["submitters"], ["admins"]):
        async with client_of(federated, await issuer.mint(sub="quentin", groups=groups)) as client:
            names.add((await client.whoami()).name)
    assert len(names) == 1

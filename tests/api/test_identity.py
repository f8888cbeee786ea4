"""Tokens, users and roles over the API: issue, rotate, revoke, and never more than the caller has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from mainspring.views import audit as audit_views
from tests.conftest import Cluster
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def using(cluster: Cluster, token: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, token) as client:
        yield client


async def issued(client: AsyncClient, name: str, **fields: Any) -> str:
    return (await client.issue_token(wire.NewToken(name=name, **fields))).token


def job(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": {"kind": "noop"}, **fields}


async def refused(cluster: Cluster, token: str) -> bool:
    async with using(cluster, token) as client:
        try:
            await client.jobs()
        except Unauthenticated:
            return True
    return False


async def test_a_token_of_a_role_has_its_scopes_origin_and_use(cluster: Cluster, client: AsyncClient) -> None:
    token = await issued(client, "nightly report", role="viewer", expires_in="90d")
    (line,) = [t for t in (await client.tokens(limit=500)).items if t.name == "nightly report"]
    assert (line.role, line.scopes, line.last_used_at, line.expired) == ("viewer", ["read"], None, False)
    assert line.created_by is not None and line.created_by.startswith("test admin [")
    assert line.expires_at is not None and (line.expires_at - line.created_at).days in (89, 90)
    async with using(cluster, token) as viewer:
        await viewer.jobs()
        with pytest.raises(Forbidden, match="'write'"):
            await viewer.create_job(job("no"))
        with pytest.raises(Forbidden, match="'tokens'"):
            await viewer.tokens()
    (line,) = [t for t in (await client.tokens(limit=500)).items if t.name == "nightly report"]
    assert line.last_used_at is not None
    await client.revoke_token(line.token_id)
    assert await refused(cluster, token)
    with pytest.raises(NotFound):
        await client.revoke_token(line.token_id)


async def test_use_is_recorded_at_most_once_a_minute(cluster: Cluster, client: AsyncClient) -> None:
    token = await issued(client, "busy", role="viewer")
    seen = set()
    for _ in range(3):
        cluster.context.auth.expire_all()
        async with using(cluster, token) as viewer:
            await viewer.jobs()
        (line,) = [t for t in (await client.tokens(limit=500)).items if t.name == "busy"]
        seen.add(line.last_used_at)
    assert len(seen) == 1 and None not in seen


async def test_the_list_has_pages(client: AsyncClient) -> None:
    for n in range(5):
        await issued(client, f"paged {n}", role="viewer")
    names: list[str] = []
    cursor = None
    while True:
        page = await client.tokens(limit=2, cursor=cursor)
        names += [t.name for t in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert [n for n in names if n.startswith("paged")] == [f"paged {n}" for n in reversed(range(5))]
    assert len(names) == len((await client.tokens(limit=500)).items)
    for wrong in ("x", "2026-01-01_x", "_"):
        with pytest.raises(Invalid, match="cursor"):
            await client.tokens(cursor=wrong)


async def test_a_rotated_token_stays_valid_for_the_overlap(cluster: Cluster, client: AsyncClient) -> None:
    old = await client.issue_token(wire.NewToken(name="rotates", role="submitter", queues=["short"], expires_in="10d"))
    new = await client.rotate_token(old.token_id, overlap="1h")
    assert new.replaces == old.token_id and new.replaced_until is not None and new.scopes == ["read", "write"]
    assert not await refused(cluster, old.token) and not await refused(cluster, new.token)
    lines = {t.token_id: t for t in (await client.tokens(limit=500)).items}
    assert lines[old.token_id].replaced_by == new.token_id and lines[old.token_id].expires_at == new.replaced_until
    assert lines[new.token_id].queues == ["short"] and lines[new.token_id].role == "submitter"
    assert new.expires_at is not None and (new.expires_at - lines[new.token_id].created_at).days in (9, 10)
    with pytest.raises(Conflict, match="rotated already"):
        await client.rotate_token(old.token_id)
    last = await client.rotate_token(new.token_id, overlap="0s")

    async def ended() -> bool:
        return await refused(cluster, new.token)

    await until_async("the old token ends", ended, within_s=10)
    assert not await refused(cluster, last.token)


async def test_a_cached_token_ends_when_it_expires(cluster: Cluster, client: AsyncClient) -> None:
    """A credential is remembered for 5 seconds; the rest of its life is shorter."""
    token = await issued(client, "short-lived", role="viewer", expires_in="1s")
    assert not await refused(cluster, token)

    async def ended() -> bool:
        return await refused(cluster, token)

    await until_async("the token expires", ended, within_s=3)


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        (["read", "tokens"], {"scopes": ["write"]}),
        (["read", "tokens"], {"role": "admin"}),
        (["read", "write", "tokens"], {"role": "operator"}),
        (["read", "tokens"], {"scopes": ["worker"], "queues": ["short"]}),
        (["read", "tokens"], {"scopes": ["exceed"]}),
        (["admin", "tenant"], {"scopes": ["shared"]}),
        (["admin", "tenant"], {"scopes": ["cluster"]}),
        (["admin", "tenant"], {"role": "cluster-admin"}),
    ],
)
async def test_a_caller_cannot_grant_more_than_it_has(
    cluster: Cluster, neighbour: AsyncClient, client: AsyncClient, held: list[str], asked: dict[str, Any]
) -> None:
    if "tenant" in held:
        granting = neighbour
    else:
        granting = AsyncClient(cluster.url, await issued(client, "granting", scopes=held))
    with pytest.raises(Forbidden) as error:
        await issued(granting, "more", **asked)
    assert error.value.code == "grants_more"
    await issued(granting, "same", scopes=["read"])


async def test_restricted_tokens_pass_on_at_most_their_queues(cluster: Cluster, client: AsyncClient) -> None:
    scopes = ["read", "write", "tokens"]
    async with using(cluster, await issued(client, "gpu", scopes=scopes, queues=["gpu-*"])) as gpu:
        # Restricted tokens cannot issue tokens at all: the route does not check jobs one by one.
        with pytest.raises(Forbidden) as error:
            await issued(gpu, "any", scopes=["read", "write"])
        assert error.value.code == "not_granted"


async def test_shared_exceed_and_cluster_can_be_issued(cluster: Cluster, client: AsyncClient) -> None:
    token = await client.issue_token(
        wire.NewToken(name="all", scopes=["shared", "exceed", "cluster", "worker"], queues=["*"])
    )
    assert token.scopes == ["cluster", "exceed", "shared", "worker"]
    made = await client.issue_token(wire.NewToken(name="cluster", role="cluster-admin"))
    assert made.scopes == ["admin", "cluster", "shared"]


async def test_users_limit_their_tokens_and_changes_apply_at_once(cluster: Cluster, client: AsyncClient) -> None:
    made = await client.create_user(wire.NewUser(name="analyst", role="submitter", display_name="Analyst Liddell"))
    assert (made.kind, made.role, made.display_name, made.tokens) == ("user", "submitter", "Analyst Liddell", 0)
    with pytest.raises(Conflict):
        await client.create_user(wire.NewUser(name="analyst", role="viewer"))
    token = await issued(client, "laptop", user="analyst")
    narrow = await issued(client, "phone", user="analyst", scopes=["read", "operate"])
    async with using(cluster, token) as analyst, using(cluster, narrow) as phone:
        await analyst.create_job(job("alices"))
        with pytest.raises(Forbidden):
            await phone.create_job(job("phones"))  # restricted by its own scopes
        with pytest.raises(Forbidden):
            await phone.dead_letters()  # restricted by the role of the user
        await client.change_user("analyst", wire.UserChange(role="viewer"))

        async def demoted() -> bool:
            try:
                await analyst.pause_job("alices")
            except Forbidden:
                return True
            return False

        await until_async("the new role applies", demoted, within_s=10)
    entries = (await audit_views.list_entries(cluster.database, tenant=1, action="job.create")).items
    assert "analyst/laptop" in {e.actor for e in entries if e.name == "alices"}
    (listed,) = [u for u in (await client.users()).items if u.name == "analyst"]
    assert listed.tokens == 2 and listed.last_used_at is not None
    await client.delete_user("analyst")
    assert await refused(cluster, token) and await refused(cluster, narrow)
    with pytest.raises(NotFound):
        await issued(client, "late", user="analyst")
    again = await client.create_user(wire.NewUser(name="analyst", role="viewer"))  # the name is free again
    assert again.user_id != made.user_id


async def test_custom_roles(cluster: Cluster, client: AsyncClient, neighbour: AsyncClient) -> None:
    await client.write_role("night-shift", wire.RoleSpec(scopes=["read"], description="nights"))
    token = await issued(client, "nights", role="night-shift")
    async with using(cluster, token) as nights:
        with pytest.raises(Forbidden):
            await nights.dead_letters()
        await client.write_role("night-shift", wire.RoleSpec(scopes=["read", "operate"]))

        async def promoted() -> bool:
            try:
                await nights.dead_letters()
            except Forbidden:
                return False
            return True

        await until_async("the change applies", promoted, within_s=10)
    with pytest.raises(Conflict, match="give them another one"):
        await client.delete_role("night-shift")
    with pytest.raises(Invalid, match="there is no role 'night-shift'"):
        await issued(neighbour, "foreign", role="night-shift")
    with pytest.raises(NotFound):
        await neighbour.delete_role("night-shift")
    (line,) = [t for t in (await client.tokens(limit=500)).items if t.name == "nights"]
    await client.revoke_token(line.token_id)
    await client.delete_role("night-shift")
    assert "night-shift" not in {r.name for r in (await client.roles()).items}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scopes": ["raed"]}, "did you mean 'read'"),
        ({"role": "viewr"}, "did you mean 'viewer'"),
        ({}, "a role or at least one scope"),
        ({"role": "viewer", "expires_in": "soon"}, "/expires_in"),
        ({"role": "viewer", "expires_in": "100y"}, "/expires_in"),
        ({"scopes": ["worker"]}, "names its queues"),
        ({"role": "viewer", "queues": ["No Queue"]}, "No Queue"),
    ],
)
async def test_a_wrong_request_says_what_to_do(client: AsyncClient, fields: dict[str, Any], message: str) -> None:
    before = len((await client.tokens(limit=500)).items)
    with pytest.raises(Invalid) as error:
        await issued(client, "wrong", **fields)
    assert message in str(error.value)
    assert len((await client.tokens(limit=500)).items) == before


async def test_built_in_roles_and_bad_names_are_refused(client: AsyncClient) -> None:
    for name in ("admin", "Bad Name", "x" * 64):
        with pytest.raises(Invalid):
            await client.write_role(name, wire.RoleSpec(scopes=["read"]))
    with pytest.raises(Conflict, match="built in"):
        await client.delete_role("viewer")
    with pytest.raises(Invalid):
        await client.create_user(wire.NewUser(name="a/b", role="viewer"))


async def test_foreign_tokens_and_users_are_unknown(client: AsyncClient, neighbour: AsyncClient) -> None:
    made = await client.issue_token(wire.NewToken(name="mine", role="viewer"))
    await client.create_user(wire.NewUser(name="auditor", role="viewer"))
    assert not {t.token_id for t in (await neighbour.tokens()).items} & {made.token_id}
    for foreign in (
        neighbour.revoke_token(made.token_id),
        neighbour.rotate_token(made.token_id),
        neighbour.delete_user("auditor"),
        neighbour.change_user("auditor", wire.UserChange(role="admin")),
        neighbour.issue_token(wire.NewToken(name="x", user="auditor")),
    ):
        with pytest.raises(NotFound):
            await foreign


async def test_queue_grants_restrict_what_a_token_changes_and_runs(cluster: Cluster, client: AsyncClient) -> None:
    await client.create_job(job("slow", queue="long"))
    await client.create_job(job("quick", queue="short"))
    ended = (await client.trigger("slow")).execution_id
    token = await issued(client, "only short", role="operator", queues=["short"])
    async with using(cluster, token) as restricted:
        await restricted.create_job(job("mine", queue="short"))
        await restricted.trigger("quick")
        await restricted.pause_job("quick")
        await restricted.resume_job("quick")
        await restricted.patch_job("quick", {"priority": 6})
        assert (await restricted.job("slow")).name == "slow"  # reading is not restricted
        refusals: list[Callable[[], Awaitable[Any]]] = [
            lambda: restricted.create_job(job("other", queue="long")),
            lambda: restricted.patch_job("quick", {"queue": "long"}),
            lambda: restricted.patch_job("slow", {"queue": "short"}),
            lambda: restricted.trigger("slow"),
            lambda: restricted.trigger("slow", wire.RunNow(reason="please")),
            lambda: restricted.pause_job("slow"),
            lambda: restricted.resume_job("slow"),
            lambda: restricted.delete_job("slow"),
            lambda: restricted.cancel(ended),
            lambda: restricted.submit([wire.BatchItem(job="quick"), wire.BatchItem(job="slow")]),
            lambda: restricted.delete_calendar("any"),  # does not check grants: refused as a whole
            lambda: restricted.delete_workflow("slow"),
        ]
        for act in refusals:
            with pytest.raises(Forbidden) as error:
                await act()
            assert error.value.code == "not_granted", error.value
        await restricted.delete_job("mine")
    assert (await client.job("slow")).spec.queue == "long"


async def test_label_grants_restrict_to_jobs_that_require_them(cluster: Cluster, client: AsyncClient) -> None:
    token = await issued(client, "eu", role="submitter", labels=["zone=eu"])
    async with using(cluster, token) as restricted:
        await restricted.create_job(job("eu-job", labels={"zone": "eu"}))
        for labels in ({}, {"zone": "us"}, {"zone": "eu", "gpu": "a100"}):
            with pytest.raises(Forbidden, match="zone=eu"):
                await restricted.create_job(job("other-job", labels=labels))


async def test_restricted_tokens_cannot_touch_workflows(cluster: Cluster, client: AsyncClient) -> None:
    flow = {"name": "flow", "steps": {"a": {"task": {"kind": "noop"}, "queue": "short"}}}
    await client.apply_workflow(flow)
    token = await issued(client, "short too", role="operator", queues=["short"])
    async with using(cluster, token) as restricted:
        for act in (restricted.trigger("flow"), restricted.pause_job("flow"), restricted.start_run("flow")):
            with pytest.raises(Forbidden):
                await act

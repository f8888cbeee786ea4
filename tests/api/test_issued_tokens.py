"""A token that somebody else has issued opens no gate for its issuer, in either direction, by any detour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden
from mainspring.store.migrate import migrations
from tests.conftest import Cluster
from tests.support.api_tokens import Issue

pytestmark = [pytest.mark.anyio, pytest.mark.requirement(138)]

OPERATOR = ["read", "write", "operate"]
Open = Callable[[str], Awaitable[AsyncClient]]


@pytest.fixture
async def open_client(cluster: Cluster) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:
        yield lambda token: stack.enter_async_context(AsyncClient(cluster.url, token))


@pytest.fixture
async def admin(open_client: Open, issue: Issue) -> AsyncClient:
    """An administrator who issues tokens: a user."""
    name = f"admin-{uuid4().hex[:12]}"
    registrar = await open_client(await issue("admin"))
    await registrar.create_user(wire.NewUser(name=name, role="admin"))
    return await open_client((await registrar.issue_token(wire.NewToken(name="t", user=name))).token)


@pytest.fixture
async def other(open_client: Open, issue: Issue) -> AsyncClient:
    """Another administrator: a token without a user."""
    return await open_client(await issue("admin"))


async def of_user(admin: AsyncClient, open_client: Open, *, by: AsyncClient | None = None) -> AsyncClient:
    """A new user, who may rotate its tokens, with a token that `by` has issued."""
    name = f"user-{uuid4().hex[:12]}"
    await admin.write_role("rotating", wire.RoleSpec(scopes=[*OPERATOR, "tokens"]))
    await admin.create_user(wire.NewUser(name=name, role="rotating"))
    return await open_client((await (by or admin).issue_token(wire.NewToken(name="laptop", user=name))).token)


async def begun(author: AsyncClient, starter: AsyncClient, *, count: int = 1) -> UUID:
    name = f"gate-{uuid4()}"
    await author.apply_workflow({"name": name, "steps": {"sign": {"approval": {"count": count}}}})
    return (await starter.start_run(name)).run_id


async def refused(client: AsyncClient, run_id: UUID, *, issuer: str = "") -> None:
    for attempt in (client.decide(run_id, "sign", approved=True), client.skip_step(run_id, "sign", "let me")):
        with pytest.raises(Forbidden) as refusal:
            await attempt
        assert refusal.value.code == "self_approval" and issuer in str(refusal.value)


async def test_a_token_of_a_user_cannot_approve_what_its_issuer_started_or_wrote(
    client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    for issuer, another in ((admin, other), (other, admin)):
        ben = await of_user(admin, open_client, by=issuer)
        me = (await issuer.whoami()).token_id.hex[:8]
        for author, starter in ((client, issuer), (issuer, client)):
            run_id = await begun(author, starter)
            await refused(ben, run_id, issuer=f"[{me}]")
            # A token that another administrator has issued is another person's.
            carl = await of_user(admin, open_client, by=another)
            assert (await carl.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_an_issuer_cannot_approve_what_its_token_started(
    client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    robot = await open_client((await admin.issue_token(wire.NewToken(name="robot", scopes=OPERATOR))).token)
    for starter in (robot, await of_user(admin, open_client)):
        run_id = await begun(client, starter)
        await refused(admin, run_id)
        assert (await other.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_two_users_whose_tokens_one_administrator_issued_are_two_people(
    client: AsyncClient, admin: AsyncClient, open_client: Open
) -> None:
    ann, ben = await of_user(admin, open_client), await of_user(admin, open_client)
    run_id = await begun(client, ann)
    assert (await ben.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_a_chain_of_tokens_and_a_rotation_are_no_detour(
    client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    second = await open_client((await admin.issue_token(wire.NewToken(name="second", scopes=["admin"]))).token)
    ben = await of_user(admin, open_client, by=second)
    carl = await of_user(admin, open_client, by=other)
    taken = await open_client((await admin.rotate_token((await carl.whoami()).token_id)).token)
    again = await open_client((await taken.rotate_token((await taken.whoami()).token_id)).token)
    for starter, detours in ((admin, (ben, taken, again)), (other, (taken, again))):
        run_id = await begun(client, starter)
        for detour in detours:
            await refused(detour, run_id)


async def test_a_token_and_its_issuer_count_as_one_approval(
    client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    ben = await of_user(admin, open_client)
    for first, second in ((ben, admin), (admin, ben)):
        run_id = await begun(client, client, count=2)
        await first.decide(run_id, "sign", approved=True)
        with pytest.raises(Conflict) as refusal:
            await second.decide(run_id, "sign", approved=True)
        assert refusal.value.code == "already_approved"
        assert (await other.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_a_longer_timeout_needs_somebody_else_too(
    client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    queue = f"q{uuid4().hex[:12]}"
    await client.set_queue(queue, {"max_duration_s": 60})
    ben = await of_user(admin, open_client)
    asked = wire.NewDurationRequest(job=f"job-{uuid4()}", queue=queue, timeout="2h", reason="end of the year")
    request = await ben.request_duration(asked)
    with pytest.raises(Forbidden) as refusal:
        await admin.decide_duration(request.request_id, approved=True)
    assert refusal.value.code == "self_approval" and "issued the token of the other" in str(refusal.value)
    assert (await other.decide_duration(request.request_id, approved=True)).state == "approved"


async def test_the_audit_log_shows_who_issued_the_token_of_the_actor(
    client: AsyncClient, admin: AsyncClient, open_client: Open
) -> None:
    ben = await of_user(admin, open_client)
    run_id = await begun(client, client)
    await ben.decide(run_id, "sign", approved=True)
    (entry,) = (await client.audit(subject=str(run_id), action="step.approve")).items
    me = await admin.whoami()
    assert entry.details["issued_by"] == me.name
    made = await client.create_job({"name": f"job-{uuid4()}", "task": {"kind": "noop"}})
    (entry,) = (await client.audit(subject=str(made.job_id))).items
    assert "issued_by" not in (entry.details or {}), "no one has issued the first token of an installation"


async def test_the_migration_finds_the_issuers_of_earlier_tokens(
    cluster: Cluster, client: AsyncClient, admin: AsyncClient, other: AsyncClient, open_client: Open
) -> None:
    second = await open_client((await admin.issue_token(wire.NewToken(name="second", scopes=["admin"]))).token)
    made = [second, await of_user(admin, open_client, by=second), admin, other]
    taken = await of_user(admin, open_client, by=other)
    made.append(await open_client((await taken.rotate_token((await taken.whoami()).token_id)).token))
    ids = [(await each.whoami()).token_id for each in made]
    recorded = "SELECT token_id, (SELECT array_agg(i ORDER BY i) FROM unnest(issuers) i) FROM tokens"
    async with cluster.database.connection() as connection:
        before = dict(await connection.fetch(f"{recorded} WHERE token_id = ANY ($1)", ids))
        assert [len(before[one] or ()) for one in ids] == [2, 3, 1, 0, 1]
        text = next(m.sql for m in migrations() if m.name == "token_issuers")
        await connection.execute("UPDATE tokens SET issuers = '{}', issued_by = NULL")
        await connection.execute(text[text.index("WITH RECURSIVE") :])
        assert dict(await connection.fetch(f"{recorded} WHERE token_id = ANY ($1)", ids)) == before

"""Gates that name who decides and how many of them, and that guard the edits of their workflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid
from tests.conftest import Cluster
from tests.support.api_tokens import Issue

pytestmark = pytest.mark.anyio


class Users:
    """Users by name, each with clients for as many tokens as asked for, which an administrator issues."""

    def __init__(self, cluster: Cluster, admin: AsyncClient, stack: AsyncExitStack) -> None:
        self.cluster, self.admin, self.stack = cluster, admin, stack
        self.made: set[str] = set()

    async def __call__(self, name: str, role: str = "operator", groups: Sequence[str] = ()) -> AsyncClient:
        if name not in self.made:
            await self.admin.create_user(wire.NewUser(name=name, role=role, groups=list(groups)))
            self.made.add(name)
        issued = await self.admin.issue_token(wire.NewToken(name=f"t-{uuid4()}", user=name))
        return await self.stack.enter_async_context(AsyncClient(self.cluster.url, issued.token))


@pytest.fixture
async def user(cluster: Cluster, issue: Issue) -> AsyncIterator[Users]:
    async with AsyncExitStack() as stack:
        registrar = await stack.enter_async_context(AsyncClient(cluster.url, await issue("admin")))
        yield Users(cluster, registrar, stack)


async def begun(author: AsyncClient, starter: AsyncClient, **approval: Any) -> UUID:
    name = f"gate-{uuid4()}"
    await author.apply_workflow({"name": name, "steps": {"sign": {"approval": approval}}})
    return (await starter.start_run(name)).run_id


def name(prefix: str) -> str:
    return f"{prefix}-{uuid4().hex[:8]}"


async def test_another_token_of_the_same_user_is_no_other_person(client: AsyncClient, user: Users) -> None:
    ann = name("ann")
    one, other, ben = await user(ann), await user(ann), await user(name("ben"))
    run_id = await begun(client, one)
    with pytest.raises(Forbidden) as refused:
        await other.decide(run_id, "sign", approved=True)
    assert refused.value.code == "self_approval"
    assert (await ben.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_only_the_named_roles_and_users_decide(client: AsyncClient, user: Users) -> None:
    role = name("release")
    await client.write_role(role, wire.RoleSpec(scopes=["read", "write", "operate"]))
    ben, eve, of_role = name("ben"), name("eve"), name("rita")
    run_id = await begun(client, client, users=[ben], roles=[role])
    stranger = await user(eve)
    for attempt in (
        stranger.decide(run_id, "sign", approved=True),
        stranger.decide(run_id, "sign", approved=False),
        stranger.skip_step(run_id, "sign", "let me"),
        stranger.force_complete_step(run_id, "sign", "let me"),
    ):
        with pytest.raises(Forbidden) as refused:
            await attempt
        assert refused.value.code == "not_approver" and ben in str(refused.value) and role in str(refused.value)
    (step,) = (await client.run(run_id)).steps
    assert (step.state, step.approvers) == ("waiting", [f"role {role}", f"user {ben}"])
    assert (await (await user(ben)).decide(run_id, "sign", approved=True)).state == "succeeded"
    run_id = await begun(client, client, roles=[role])
    assert (await (await user(of_role, role)).decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_members_of_a_group_decide_from_the_moment_they_are_in_it(client: AsyncClient, user: Users) -> None:
    group, ann, ben = name("auditors"), name("ann"), name("ben")
    member, stranger = await user(ann, groups=[group, "others"]), await user(ben, groups=["others"])
    run_id = await begun(client, client, groups=[group])
    with pytest.raises(Forbidden) as refused:
        await stranger.decide(run_id, "sign", approved=True)
    assert refused.value.code == "not_approver" and f"the group '{group}'" in str(refused.value)
    (step,) = (await client.run(run_id)).steps
    assert step.approvers == [f"group {group}"]
    await client.change_user(ann, wire.UserChange(groups=["others"]))
    assert (await member.whoami()).groups == ["others"]
    with pytest.raises(Forbidden):
        await member.decide(run_id, "sign", approved=True)
    changed = await client.change_user(ben, wire.UserChange(groups=[group]))
    assert changed.groups == [group]
    assert (await stranger.decide(run_id, "sign", approved=True)).state == "succeeded"
    (entry, *_) = (await client.audit(subject=str(changed.user_id), action="user.edit")).items
    assert entry.details["changes"]["groups"] == [["others"], [group]]


@pytest.mark.parametrize("wrong", ["", "two\nlines", "x" * 101])
async def test_a_group_has_a_name_that_can_be_shown(client: AsyncClient, wrong: str) -> None:
    with pytest.raises(Invalid, match="groups"):
        await client.create_user(wire.NewUser(name=name("u"), role="viewer", groups=[wrong]))


async def issuing(client: AsyncClient, user: Users, *more: str) -> tuple[str, AsyncClient]:
    """A user who may issue tokens, and is no administrator."""
    role, ann = name("issuing"), name("ann")
    await client.write_role(role, wire.RoleSpec(scopes=["read", "write", "operate", "tokens", *more]))
    return ann, await user(ann, role)


async def test_a_token_that_a_user_issues_is_the_same_person(client: AsyncClient, user: Users) -> None:
    _, ann = await issuing(client, user)
    issued = await ann.issue_token(wire.NewToken(name="robot", scopes=["read", "write", "operate", "tokens"]))
    robot = await user.stack.enter_async_context(AsyncClient(user.cluster.url, issued.token))
    again = await robot.issue_token(wire.NewToken(name="robot", scopes=["read", "write"]))
    rotated = await robot.rotate_token(again.token_id)
    tokens = [again.token, rotated.token]
    of_robot = [await user.stack.enter_async_context(AsyncClient(user.cluster.url, token)) for token in tokens]
    for starter, others in ((ann, [robot, *of_robot]), (of_robot[1], [ann, robot, of_robot[0]])):
        run_id = await begun(client, starter)
        for other in others:
            with pytest.raises(Forbidden) as refused:
                await other.decide(run_id, "sign", approved=True)
            assert refused.value.code == "self_approval"
        assert (await (await user(name("ben"))).decide(run_id, "sign", approved=True)).state == "succeeded"
    run_id = await begun(client, client, count=2)
    await ann.decide(run_id, "sign", approved=True)
    with pytest.raises(Conflict, match="has approved"):
        await robot.decide(run_id, "sign", approved=True)


async def test_only_administrators_issue_tokens_that_gates_take_for_somebody_else(
    client: AsyncClient, user: Users
) -> None:
    ann, issuer = await issuing(client, user)
    release, ben = name("release"), name("ben")
    await client.write_role(release, wire.RoleSpec(scopes=["read", "write"]))
    of_ben = await user(ben)
    token_of_ben = (await of_ben.whoami()).token_id
    for attempt in (
        issuer.issue_token(wire.NewToken(name="x", user=ben)),
        issuer.issue_token(wire.NewToken(name="x", role=release)),
        issuer.rotate_token(token_of_ben),
    ):
        with pytest.raises(Forbidden) as refused:
            await attempt
        assert refused.value.code == "grants_more"
    own = await issuer.issue_token(wire.NewToken(name="x", user=ann))
    assert (await issuer.rotate_token(own.token_id)).replaces == own.token_id
    await client.rotate_token(token_of_ben)


async def test_two_different_users_have_to_approve(client: AsyncClient, user: Users) -> None:
    ann = name("ann")
    one, other, ben = await user(ann), await user(ann), await user(name("ben"))
    run_id = await begun(client, client, count=2)
    assert (await one.decide(run_id, "sign", approved=True, note="seen")).state == "running"
    for again in (one, other):
        with pytest.raises(Conflict) as refused:
            await again.decide(run_id, "sign", approved=True)
        assert refused.value.code == "already_approved"
    for override in (ben.skip_step(run_id, "sign", "x"), ben.force_complete_step(run_id, "sign", "x")):
        with pytest.raises(Forbidden) as denied:
            await override
        assert denied.value.code == "more_approvals"
    ended = await ben.decide(run_id, "sign", approved=True)
    assert ended.state == "succeeded" and ended.steps[0].approvals_needed == 2
    entries = (await client.audit(subject=str(run_id), action="step.approve")).items
    assert [e.details["approvals"] for e in entries] == [2, 1]


async def test_one_rejection_is_enough(client: AsyncClient, user: Users) -> None:
    run_id = await begun(client, client, count=3)
    await (await user(name("ann"))).decide(run_id, "sign", approved=True)
    assert (await (await user(name("ben"))).decide(run_id, "sign", approved=False)).state == "failed"


async def test_a_gate_can_guard_the_edits_of_its_workflow(client: AsyncClient, user: Users) -> None:
    ben, flow = name("ben"), name("flow")
    gate = {"approval": {"users": [ben], "guards_edits": True}}
    await client.apply_workflow({"name": flow, "steps": {"sign": gate}})
    opened = {"name": flow, "steps": {"sign": {"approval": {"self_approval": True}}}}
    for attempt in (client.apply_workflow(opened), client.delete_workflow(flow)):
        with pytest.raises(Forbidden) as refused:
            await attempt
        assert refused.value.code == "not_approver"
    await client.apply_workflow({"name": flow, "steps": {"sign": gate}})  # nothing differs
    await (await user(ben)).apply_workflow(opened)
    await client.delete_workflow(flow)


async def test_a_gate_that_guards_edits_names_by_whom(client: AsyncClient) -> None:
    with pytest.raises(Invalid, match="needs roles, users or groups"):
        await client.apply_workflow({"name": name("x"), "steps": {"sign": {"approval": {"guards_edits": True}}}})
    with pytest.raises(Invalid):
        await client.apply_workflow({"name": name("x"), "steps": {"sign": {"approval": {"count": 0}}}})

"""A gate is opened by someone else than who wants to pass it, by every route, unless it says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import Forbidden
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.pages import NAVIGATION, open_page, sign_in
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

GATE: dict[str, Any] = {"sign": {"approval": {}}, "after": {"approval": {}, "needs": ["sign"]}}
PERSON = ("read", "write", "operate")


@pytest.fixture
async def ann(cluster: Cluster, issue: Issue) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, await issue(*PERSON)) as client:
        yield client


@pytest.fixture
async def ben(cluster: Cluster, issue: Issue) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, await issue(*PERSON)) as client:
        yield client


async def begun(author: AsyncClient, starter: AsyncClient, steps: dict[str, Any] = GATE) -> UUID:
    name = f"gate-{uuid4()}"
    await author.apply_workflow({"name": name, "steps": steps})
    return (await starter.start_run(name)).run_id


async def refused(client: AsyncClient, run_id: UUID, step: str = "sign") -> None:
    """Neither way through the gate is open."""
    for attempt in (
        client.decide(run_id, step, approved=True),
        client.skip_step(run_id, step, "let me"),
        client.force_complete_step(run_id, step, "let me"),
    ):
        with pytest.raises(Forbidden) as told:
            await attempt
        assert told.value.code == "self_approval"
        assert "self_approval: true" in told.value.problems[0].hint
    states = {s.name: s.state for s in (await client.run(run_id)).steps}
    assert states[step] == "waiting"


async def test_who_started_the_run_cannot_approve_it(client: AsyncClient, ann: AsyncClient, ben: AsyncClient) -> None:
    run_id = await begun(client, ann)
    await refused(ann, run_id)
    approved = await ben.decide(run_id, "sign", approved=True)
    assert {s.name: s.state for s in approved.steps} == {"sign": "succeeded", "after": "waiting"}


async def test_who_wrote_the_version_cannot_approve_it(client: AsyncClient, ann: AsyncClient, ben: AsyncClient) -> None:
    run_id = await begun(ann, ben)
    await refused(ann, run_id)
    await refused(ben, run_id)
    await client.decide(run_id, "sign", approved=True)


async def test_an_administrator_is_no_exception(client: AsyncClient, ann: AsyncClient) -> None:
    run_id = await begun(ann, client)
    await refused(client, run_id)


async def test_who_started_it_may_reject_it(client: AsyncClient, ann: AsyncClient) -> None:
    run_id = await begun(client, ann)
    rejected = await ann.decide(run_id, "sign", approved=False)
    assert {s.name: s.state for s in rejected.steps}["sign"] == "failed"


async def test_a_gate_can_allow_it(ann: AsyncClient) -> None:
    run_id = await begun(ann, ann, {"sign": {"approval": {"self_approval": True}}})
    assert (await ann.decide(run_id, "sign", approved=True)).state == "succeeded"


async def test_a_rerun_by_someone_else_does_not_make_it_theirs(
    client: AsyncClient, ann: AsyncClient, ben: AsyncClient
) -> None:
    run_id = await begun(client, ann)
    await ann.cancel_run(run_id)
    again = (await ben.rerun(run_id)).run_id
    await refused(ben, again)
    await refused(ann, again)
    await refused(client, again)


async def test_a_rerun_keeps_the_name_of_who_approved(client: AsyncClient, ann: AsyncClient, ben: AsyncClient) -> None:
    run_id = await begun(client, ann)
    approver = {s.name: s for s in (await ben.decide(run_id, "sign", approved=True)).steps}["sign"].decided_by
    await ann.cancel_run(run_id)
    again = await ann.rerun(run_id)
    sign, after = again.steps
    assert (sign.state, sign.flag, sign.decided_by) == ("succeeded", "kept", approver), "not of who reran it"
    await refused(ann, again.run_id, after.name)


async def test_the_gate_of_an_inner_run_is_closed_to_who_started_the_outer_one(
    client: AsyncClient, ann: AsyncClient
) -> None:
    inner = f"inner-{uuid4()}"
    await client.apply_workflow({"name": inner, "steps": GATE})
    await begun(client, ann, {"call": {"workflow": inner}})

    async def begins() -> bool:
        return [r.state for r in (await client.runs(workflow=inner)).items] == ["running"]

    await until_async("the inner run", begins, within_s=60)
    (started,) = (await client.runs(workflow=inner)).items
    await refused(ann, started.run_id)


async def test_two_tokens_of_one_name_are_two_people(cluster: Cluster, client: AsyncClient, issue: Issue) -> None:
    one, other = await issue(*PERSON), await issue(*PERSON)
    async with AsyncClient(cluster.url, one) as first, AsyncClient(cluster.url, other) as second:
        run_id = await begun(client, first)
        await refused(first, run_id)
        await second.decide(run_id, "sign", approved=True)


async def test_what_was_recorded_by_name_alone_counts(cluster: Cluster, client: AsyncClient, ann: AsyncClient) -> None:
    run_id = await begun(client, ann)
    async with cluster.database.connection() as connection:
        await connection.execute(
            "UPDATE runs SET created_by = regexp_replace(created_by, ' \\[.*', '') WHERE run_id = $1", run_id
        )
    await refused(ann, run_id)


async def test_the_page_offers_it_to_others_only(cluster: Cluster, client: AsyncClient, issue: Issue) -> None:
    token, other = await issue(*PERSON), await issue(*PERSON)
    async with AsyncClient(cluster.url, token) as starter:
        run_id = await begun(client, starter)
    for credential, may in ((token, False), (other, True)):
        async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
            await sign_in(browser, credential)
            page = await open_page(browser, f"/runs/{run_id}")
            assert ("Approve…" in page.text, "requires another approver" in page.text) == (may, not may)
            form = {"csrf": page.csrf, "step": "sign", "what": "approve", "reason": ""}
            answer = await browser.post(f"/runs/{run_id}/decide", data=form)
            assert answer.status_code == (303 if may else 403)


async def test_the_pages_of_a_run_need_operate_for_more_than_decisions(
    cluster: Cluster, client: AsyncClient, issue: Issue
) -> None:
    """Who may only write approves and rejects, and neither skips, completes nor reruns."""
    run_id = await begun(client, client)
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        await sign_in(browser, await issue("read", "write"))
        page = await open_page(browser, f"/runs/{run_id}")
        assert "Approve…" in page.text and "Skip…" not in page.text and "Complete…" not in page.text
        for what in ("skip", "complete"):
            form = {"csrf": page.csrf, "step": "sign", "what": what, "reason": "x"}
            assert (await browser.post(f"/runs/{run_id}/decide", data=form)).status_code == 403
        form = {"csrf": page.csrf, "step": "sign", "what": "approve", "reason": "x"}
        assert (await browser.post(f"/runs/{run_id}/decide", data=form)).status_code == 303
        await client.cancel_run(run_id)
        ended = await open_page(browser, f"/runs/{run_id}")
        assert "Rerun…" not in ended.text
        assert (await browser.post(f"/runs/{run_id}/rerun", data={"csrf": ended.csrf})).status_code == 403

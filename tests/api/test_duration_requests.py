"""Requests for timeouts above the maximum of a queue: who may ask, who decides, and what an approval allows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.pages import NAVIGATION, open_page, sign_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def queue(client: AsyncClient) -> str:
    """A queue in which nothing may take longer than a minute."""
    name = f"q{uuid4().hex[:12]}"
    await client.set_queue(name, {"max_duration_s": 60})
    return name


@pytest.fixture
async def author(cluster: Cluster, issue: Issue) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, await issue("read", "write")) as client:
        yield client


@pytest.fixture
async def operator(cluster: Cluster, issue: Issue) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.url, await issue("read", "write", "exceed")) as client:
        yield client


def job(name: str, queue: str, timeout: str = "2h") -> dict[str, Any]:
    return {"name": name, "task": {"kind": "noop"}, "queue": queue, "timeout": timeout}


def asked(name: str, queue: str, timeout: str = "2h") -> wire.NewDurationRequest:
    return wire.NewDurationRequest(job=name, queue=queue, timeout=timeout, reason="end of the year")


async def refused(client: AsyncClient, spec: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        await client.create_job(spec)
    assert refusal.value.problems[0].pointer == "/timeout"


async def test_an_approved_request_lets_the_author_write_the_job(
    client: AsyncClient, author: AsyncClient, operator: AsyncClient, queue: str
) -> None:
    name = f"job-{uuid4()}"
    with pytest.raises(Invalid) as hinted:
        await author.create_job(job(name, queue))
    assert f"duration-requests create {name} --queue {queue} --timeout 2h" in hinted.value.problems[0].hint
    made = await author.request_duration(asked(name, queue))
    assert (made.state, made.timeout, made.reason, made.decided_by) == ("requested", "2h", "end of the year", None)
    await refused(author, job(name, queue))
    decided = await operator.decide_duration(made.request_id, approved=True, note="until january")
    assert (decided.state, decided.note) == ("approved", "until january") and decided.decided_by is not None
    for other in (job(name, queue, "3h"), job(f"{name}-2", queue)):
        await refused(author, other)
    await author.create_job(job(name, queue))
    await author.patch_job(name, {"description": "still long"})
    entries = (await client.audit(subject=str(made.request_id))).items
    assert [(e.action, e.name, e.reason) for e in entries] == [
        ("duration.approve", name, "until january"),
        ("duration.request", name, "end of the year"),
    ]
    assert entries[0].details == {"queue": queue, "timeout": "2h"} and entries[0].actor_id != entries[1].actor_id
    found = (await author.duration_requests(state="approved")).items
    assert made.request_id in {request.request_id for request in found}


async def test_a_revoked_approval_allows_no_new_timeout(
    author: AsyncClient, operator: AsyncClient, client: AsyncClient, queue: str
) -> None:
    name = f"job-{uuid4()}"
    made = await author.request_duration(asked(name, queue))
    await operator.decide_duration(made.request_id, approved=True)
    await author.create_job(job(name, queue, "1h"))
    assert (await operator.decide_duration(made.request_id, approved=False)).state == "refused"
    with pytest.raises(Invalid, match="exceeds the maximum"):
        await author.patch_job(name, {"timeout": "2h"})
    await author.patch_job(name, {"description": "the version that uses it stays"})
    with pytest.raises(Conflict) as over:
        await operator.decide_duration(made.request_id, approved=True)
    assert over.value.code == "decided"
    assert (await client.audit(subject=str(made.request_id))).items[0].action == "duration.revoke"


async def test_steps_and_manifests_use_the_approval_of_their_job(
    author: AsyncClient, operator: AsyncClient, queue: str
) -> None:
    flow, name = f"flow-{uuid4()}", f"job-{uuid4()}"
    step = {"task": {"kind": "noop"}, "queue": queue, "timeout": "2h"}
    with pytest.raises(Invalid, match="exceeds the maximum"):
        await author.apply_workflow({"name": flow, "steps": {"a": step}})
    for of in (flow, name):
        made = await author.request_duration(asked(of, queue))
        await operator.decide_duration(made.request_id, approved=True)
    await author.apply_workflow({"name": flow, "steps": {"a": step}})
    spec = {"shell": ["true"], "queue": queue, "timeout": "2h"}
    manifests = [{"kind": "Job", "metadata": {"name": n}, "spec": spec} for n in (f"{name}-2", name)]
    with pytest.raises(Invalid) as partly:
        await author.apply_manifests(wire.ApplyManifests(manifests=manifests))
    assert [problem.pointer.split("/")[1:3] for problem in partly.value.problems] == [["manifests", "0"]]
    await author.apply_manifests(wire.ApplyManifests(manifests=manifests[1:]))


async def test_who_requests_it_does_not_approve_it(
    cluster: Cluster, client: AsyncClient, operator: AsyncClient, author: AsyncClient, queue: str
) -> None:
    made = await operator.request_duration(asked(f"job-{uuid4()}", queue))
    with pytest.raises(Forbidden) as own:
        await operator.decide_duration(made.request_id, approved=True)
    assert own.value.code == "self_approval"
    with pytest.raises(Forbidden, match="exceed"):
        await author.decide_duration(made.request_id, approved=True)
    role = f"deciding-{uuid4().hex[:8]}"
    await client.write_role(role, wire.RoleSpec(scopes=["read", "write", "exceed", "tokens"]))
    user = f"ann-{uuid4().hex[:8]}"
    await client.create_user(wire.NewUser(name=user, role=role))
    issued = await client.issue_token(wire.NewToken(name="one", user=user))
    async with AsyncClient(cluster.url, issued.token) as ann:
        made = await ann.request_duration(asked(f"job-{uuid4()}", queue))
        robot = await ann.issue_token(wire.NewToken(name="robot", scopes=["exceed"]))
        async with AsyncClient(cluster.url, robot.token) as same:
            with pytest.raises(Forbidden) as own:
                await same.decide_duration(made.request_id, approved=True)
        assert own.value.code == "self_approval"
    assert (await operator.decide_duration(made.request_id, approved=True)).state == "approved"


async def test_a_request_is_withdrawn_by_its_author_and_decided_once(
    author: AsyncClient, operator: AsyncClient, neighbour: AsyncClient, queue: str
) -> None:
    name = f"job-{uuid4()}"
    made = await author.request_duration(asked(name, queue))
    with pytest.raises(Conflict) as twice:
        await author.request_duration(asked(name, queue, "5h"))
    assert twice.value.code == "already_requested"
    with pytest.raises(Forbidden):
        await operator.withdraw_duration(made.request_id)
    for attempt in (
        neighbour.decide_duration(made.request_id, approved=True),
        neighbour.withdraw_duration(made.request_id),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert (await author.withdraw_duration(made.request_id)).state == "withdrawn"
    with pytest.raises(Conflict):
        await operator.decide_duration(made.request_id, approved=True)
    again = await author.request_duration(asked(name, queue))
    assert (await operator.decide_duration(again.request_id, approved=False)).state == "refused"
    await refused(author, job(name, queue))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout", "30s"),
        ("timeout", "soon"),
        ("timeout", "400d"),
        ("job", "no name"),
        ("queue", "No"),
        ("queue", "free"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    author: AsyncClient, queue: str, field: str, value: str
) -> None:
    body = {"job": "x", "queue": queue, "timeout": "2h", "reason": "r", field: value}
    with pytest.raises(Invalid):
        await author.request_duration(wire.NewDurationRequest(**body))


async def test_a_restricted_token_requests_for_its_queues_only(
    cluster: Cluster, client: AsyncClient, queue: str
) -> None:
    issued = await client.issue_token(wire.NewToken(name="some", role="submitter", queues=["other-*"]))
    async with AsyncClient(cluster.url, issued.token) as limited:
        with pytest.raises(Forbidden) as outside:
            await limited.request_duration(asked("x", queue))
    assert outside.value.code == "not_granted"


async def test_the_page_offers_a_decision_to_others_only(
    cluster: Cluster, issue: Issue, author: AsyncClient, queue: str
) -> None:
    own, other = await issue("read", "write", "exceed"), await issue("read", "exceed")
    async with AsyncClient(cluster.url, own) as requester:
        made = await requester.request_duration(asked(f"job-{uuid4()}", queue))
    path = f"/queues/duration-requests/{made.request_id}"
    for credential, may in ((await issue("read", "write"), False), (own, False), (other, True)):
        async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
            await sign_in(browser, credential)
            page = await open_page(browser, "/queues")
            offered = [attributes.get("action") for tag, attributes in page.elements if tag == "form"]
            assert made.job in page.text and offered.count(path) == (2 if may else 0)
            answer = await browser.post(path, data={"csrf": page.csrf, "approved": "yes"})
            assert answer.status_code == (303 if may else 403)
    await author.create_job(job(made.job, queue))

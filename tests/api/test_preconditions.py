"""If-Match: a stale change is rejected with what to do, and changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.api_jobs import named

pytestmark = pytest.mark.anyio


def flow(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "steps": {"one": {"approval": {}}}, **more}


def refused(answer: httpx2.Response) -> bool:
    problem = answer.json()
    (error,) = problem["errors"]
    return (
        answer.status_code == problem["status"] == 412
        and problem["code"] == "precondition_failed"
        and error["pointer"] == "/If-Match"
        and "ETag" in error["hint"]
    )


async def test_a_job_is_changed_only_as_it_was_read(http: httpx2.AsyncClient) -> None:
    made = await http.post("/api/v1/jobs", json=named())
    path = f"/api/v1/jobs/{made.json()['name']}"
    first = made.headers["etag"]
    assert first.startswith('"') and (await http.get(path)).headers["etag"] == first
    await http.post(f"{path}/pause", json={"reason": "no edit"})
    assert (await http.get(path)).headers["etag"] == first
    changed = await http.patch(path, json={"priority": 7}, headers={"If-Match": first})
    assert changed.status_code == 200 and changed.headers["etag"] not in ("", first)
    for headers in (
        {"If-Match": first},
        {"If-Match": f"W/{changed.headers['etag']}"},
        {"If-Match": '"other", "another"'},
    ):
        assert refused(await http.patch(path, json={"priority": 9}, headers=headers))
        assert refused(await http.patch(f"{path}?dry_run=true", json={"priority": 9}, headers=headers))
        assert refused(await http.delete(path, headers=headers))
    wrong = await http.patch(path, json={"priority": 9}, headers={"If-Match": first.strip('"')})
    assert wrong.status_code == 422 and "quotes" in wrong.json()["errors"][0]["hint"]
    assert (await http.get(path)).json()["spec"]["priority"] == 7
    several = {"If-Match": f"{first}, {changed.headers['etag']}"}
    assert (await http.patch(path, json={"priority": 8}, headers=several)).status_code == 200
    assert (await http.patch(path, json={"priority": 6}, headers={"If-Match": "*"})).status_code == 200
    now = (await http.get(path)).headers["etag"]
    assert (await http.delete(path, headers={"If-Match": now})).status_code == 204


async def test_of_many_that_read_the_same_one_changes_it(http: httpx2.AsyncClient) -> None:
    made = await http.post("/api/v1/jobs", json=named())
    path, headers = f"/api/v1/jobs/{made.json()['name']}", {"If-Match": made.headers["etag"]}
    answers = await asyncio.gather(
        *(http.patch(path, json={"description": f"by {n}"}, headers=headers) for n in range(8))
    )
    assert sorted(a.status_code for a in answers) == [200] + [412] * 7
    assert all(refused(a) for a in answers if a.status_code != 200)
    assert (await http.get(path)).json()["version"] == 2


async def test_a_workflow_is_changed_only_as_it_was_read(http: httpx2.AsyncClient) -> None:
    name = f"flow-{uuid4()}"
    path = f"/api/v1/workflows/{name}"
    made = await http.post("/api/v1/workflows", json=flow(name))
    first = made.headers["etag"]
    assert made.status_code == 201 and (await http.get(path)).headers["etag"] == first
    other = flow(name, description="changed")
    changed = await http.post("/api/v1/workflows", json=other, headers={"If-Match": first})
    assert changed.status_code == 200 and changed.headers["etag"] != first
    assert refused(await http.post("/api/v1/workflows", json=flow(name), headers={"If-Match": first}))
    assert refused(await http.delete(path, headers={"If-Match": first}))
    assert (await http.get(path)).json()["spec"]["description"] == "changed"
    assert (await http.delete(path, headers={"If-Match": changed.headers["etag"]})).status_code == 204


async def test_blackouts_go_on_by_cursor(http: httpx2.AsyncClient) -> None:
    made = []
    for n in range(5):
        body = {"start_at": f"2090-01-0{n + 1}T00:00:00Z", "end_at": f"2090-01-0{n + 1}T01:00:00Z", "reason": "test"}
        made.append((await http.post("/api/v1/blackouts", json=body)).json()["blackout_id"])
    seen, query = list[str](), "limit=2"
    while query:
        page = (await http.get(f"/api/v1/blackouts?{query}")).json()
        seen += [b["blackout_id"] for b in page["items"]]
        if len(seen) == 2:  # the last one that was told goes; the next page is not lost with it
            assert (await http.delete(f"/api/v1/blackouts/{seen[-1]}")).status_code == 204
        query = f"limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert seen == made[::-1]
    assert (await http.get("/api/v1/blackouts?cursor=x")).status_code == 422
    for blackout_id in made:
        await http.delete(f"/api/v1/blackouts/{blackout_id}")

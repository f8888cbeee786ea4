"""The required operations, each with its documented endpoint."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from mainspring.api.app import endpoints
from mainspring.api.auth import issue_token
from mainspring.api.openapi import document
from tests.conftest import Cluster
from tests.support.api_jobs import named

pytestmark = pytest.mark.anyio

JOB = "/api/v1/jobs/{ref}"


def documented(*wanted: tuple[str, str]) -> bool:
    paths: dict[str, Any] = document(endpoints())["paths"]
    return all(method in paths[path] and paths[path][method]["summary"] for method, path in wanted)


@pytest.mark.requirement(124)
async def test_jobs_are_created_read_changed_listed_and_deleted(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    assert documented(("post", "/api/v1/jobs"), ("get", "/api/v1/jobs"), ("get", JOB), ("patch", JOB), ("delete", JOB))
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="somebody-else", scopes=("read", "write"))
    mine, theirs = named(), named()
    assert (await http.post("/api/v1/jobs", json=mine)).status_code == 201
    other = {"Authorization": f"Bearer {token}"}
    assert (await http.post("/api/v1/jobs", json=theirs, headers=other)).status_code == 201
    path = f"/api/v1/jobs/{mine['name']}"
    assert (await http.get(path)).json()["spec"]["task"]["kind"] == "noop"
    assert (await http.patch(path, json={"description": "new"})).json()["version"] == 2
    listed = [j["name"] for j in (await http.get("/api/v1/jobs", params={"limit": 500})).json()["items"]]
    assert {mine["name"], theirs["name"]} <= set(listed)
    by_user = (await http.get("/api/v1/jobs", params={"filter": "by:somebody-else"})).json()["items"]
    assert [j["name"] for j in by_user] == [theirs["name"]]
    assert (await http.delete(path)).status_code == 204
    assert (await http.get(path)).status_code == 404


@pytest.mark.requirement(126)
async def test_pause_resume_run_now_and_dependencies(http: httpx2.AsyncClient) -> None:
    assert documented(
        ("post", JOB + "/pause"),
        ("post", JOB + "/resume"),
        ("post", JOB + "/trigger"),
        ("get", JOB + "/dependencies"),
        ("post", JOB + "/dependencies"),
        ("delete", JOB + "/dependencies/{parent}"),
    )
    parent, child = named(schedule={"every": "10h"}), named()
    for job in (parent, child):
        assert (await http.post("/api/v1/jobs", json=job)).status_code == 201
    path = f"/api/v1/jobs/{parent['name']}"
    assert (await http.post(f"{path}/pause", json={"reason": "test"})).json()["state"] == "paused"
    assert (await http.post(f"{path}/resume", json={})).json()["state"] == "active"
    ran = await http.post(f"{path}/trigger", json={})
    assert ran.status_code == 201 and ran.json()["trigger"] == "manual"
    await http.post(f"/api/v1/executions/{ran.json()['execution_id']}/cancel")
    needs = f"/api/v1/jobs/{child['name']}/dependencies"
    assert (await http.post(needs, json={"job": parent["name"]})).status_code == 201
    assert parent["name"] in (await http.get(needs)).text
    assert (await http.delete(f"{needs}/{parent['name']}")).status_code == 204
    assert (await http.get(needs)).json()["needs"] == []

"""Every route of the application, requested without a token and with every kind of token."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from starlette.routing import Route

from mainspring.api.app import build, endpoints
from mainspring.api.auth import COOKIE, PUBLIC, SIGNED
from mainspring.api.route import Endpoint
from mainspring.store.tokens import revoke_tokens_named
from mainspring.web.app import routes as pages
from mainspring.web.render import STATIC
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tools.openapi import DOCUMENT, text

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SCOPES = ("read", "write", "operate", "exceed", "tokens", "worker", "secrets", "admin", "cluster")
FOREIGN: list[dict[str, str]] = [
    {},
    {"Accept": "text/html"},
    {"Authorization": "Bearer ms_" + "x" * 43},
    {"Authorization": "Bearer"},
    {"Authorization": "Basic YWRtaW46YWRtaW4="},
    {"Cookie": f"{COOKIE}={uuid4()}.9999999999.xxxx"},
    {"Cookie": f"{COOKIE}="},
]
_PART = re.compile(r"\{(\w+)\}")


def paths(cluster: Cluster) -> list[str]:
    """Every path of the application with its parts filled in, files by their real names."""
    found = []
    for route in build(cluster.context, pages=pages).routes:
        assert isinstance(route, Route), f"{route} is not walked"
        if "{file}" in route.path:
            found += [route.path.replace("{file}", file) for file in STATIC]
        else:
            found.append(_PART.sub(str(uuid4()), route.path))
    return list(dict.fromkeys(found))


@pytest.fixture
async def asking(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=10) as client:
        yield client


async def test_strangers_get_health_and_the_login_and_nothing_else(
    cluster: Cluster, asking: httpx2.AsyncClient
) -> None:
    known = paths(cluster)
    assert {"/", "/metrics", "/ui/stream", "/api/v1/stream", "/api/v1/worker/poll", "/api/openapi.json"} <= set(known)
    assert any(path.startswith("/static/") for path in known)
    answered = set()
    for path in known:
        for method in METHODS:
            for headers in FOREIGN:
                async with asking.stream(method, path, headers=headers) as answer:
                    status, then = answer.status_code, answer.headers.get("location", "")
                # 429: no valid token, and that too often.
                refused = status in (401, 405, 429) or (status == 303 and then.startswith("/login"))
                if not refused:
                    answered.add(path)
    # A webhook is authenticated by its signature: without one it answers that there is nothing, and starts nothing.
    hooks = {path for path in known if path.startswith("/hooks/")}
    assert answered - hooks == set(PUBLIC) == {"/healthz", "/readyz", "/login"}


async def test_only_webhooks_are_authenticated_by_a_signature(cluster: Cluster, asking: httpx2.AsyncClient) -> None:
    pages_and_api = {"/login", "/healthz", "/readyz"} | {endpoint.path for endpoint in endpoints()}
    others = {r.path for r in build(cluster.context).routes if isinstance(r, Route)} - pages_and_api
    assert others == set(SIGNED) == {"/hooks/{trigger_id}"}
    path = f"/hooks/{uuid4()}"
    cluster.context.rates._unauthenticated._clear_at.clear()
    for headers in ({}, {"Authorization": f"Bearer {cluster.token}"}):
        answer = await asking.post(path, headers=headers, content=b"{}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), "a token opens no webhook"
    for method in set(METHODS) - {"POST"}:
        assert (await asking.request(method, path)).status_code in (401, 405, 429)


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/",
        "/readyz/../metrics",
        "//metrics",
        "/login/../api/v1/jobs",
        "/API/v1/jobs",
        "/static/../api",
        "/docs",
    ],
)
async def test_no_spelling_of_a_path_opens_it(asking: httpx2.AsyncClient, path: str) -> None:
    answer = await asking.get(path, follow_redirects=False)
    assert answer.status_code in (307, 401, 404) or answer.headers.get("location", "").startswith("/login")


async def test_health_tells_strangers_no_more_than_health(asking: httpx2.AsyncClient) -> None:
    assert set((await asking.get("/healthz")).json()) == {"status", "version"}
    assert set((await asking.get("/readyz")).json()) == {"status", "version", "schema_version", "checks", "notes"}


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_token_opens_what_its_scope_says_and_nothing_else(
    asking: httpx2.AsyncClient, issue: Issue, scope: str
) -> None:
    """The whole matrix of scopes and endpoints. What is let in may still be refused for what it asks."""
    headers = {"Authorization": f"Bearer {await issue(scope)}"}
    opened = set()
    for endpoint in endpoints():
        path = _PART.sub(str(uuid4()), endpoint.path)
        async with asking.stream(endpoint.method, path, headers=headers) as answer:
            if answer.status_code == 403:
                document = json.loads(await answer.aread())
                assert document["code"] == "forbidden" and repr(endpoint.scope) in document["detail"]
            else:
                assert answer.status_code != 401
                opened.add(endpoint)
    assert opened == {e for e in endpoints() if scope in (e.scope, "admin")}
    assert {e.scope for e in endpoints()} == set(SCOPES), "the matrix knows every scope"


def test_every_change_needs_more_than_the_right_to_read() -> None:
    asked = {e.path for e in endpoints() if e.method != "GET" and e.scope == "read"}
    # A link has the rights of its token, no more; a preview and a diff write nothing; callers may sign browsers out.
    own = {"/api/v1/browser-sessions", "/api/v1/browser-sessions/{ref}"}
    assert asked == {"/api/v1/login-links", "/api/v1/schedules:preview", "/api/v1/manifests:diff"} | own
    assert all(e.scope == "worker" for e in endpoints() if e.path.startswith("/api/v1/worker/"))


async def test_a_revoked_token_and_its_browser_session_end(cluster: Cluster, asking: httpx2.AsyncClient) -> None:
    from mainspring.api import auth

    async with cluster.database.connection() as connection:
        token = await auth.issue_token(connection, tenant=1, name="short-lived", scopes=("read",))
    cookie = await cluster.context.auth.cookie_for_token(token)
    known = [{"Authorization": f"Bearer {token}"}, {"Cookie": f"{COOKIE}={cookie}"}]
    for headers in known:
        assert (await asking.get("/api/v1/jobs", headers=headers)).status_code == 200
    async with cluster.database.connection() as connection:
        await revoke_tokens_named(connection, tenant=1, name="short-lived")
    cluster.context.auth.expire_all()  # as after the few seconds a token is remembered
    for headers in known:
        assert (await asking.get("/api/v1/jobs", headers=headers)).status_code == 401


async def test_a_browser_session_changes_nothing_through_the_api(cluster: Cluster, asking: httpx2.AsyncClient) -> None:
    """A cookie travels with requests that other sites cause; a token does not."""
    cookie = await cluster.context.auth.cookie_for_token(cluster.token)
    for endpoint in endpoints():
        if endpoint.method != "GET":
            path = _PART.sub(str(uuid4()), endpoint.path)
            answer = await asking.request(endpoint.method, path, headers={"Cookie": f"{COOKIE}={cookie}"})
            assert (answer.status_code, answer.json()["code"]) == (422, "token_needed")


# The document ----------------------------------------------------------------------------------------


def test_the_committed_document_is_the_api() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "run `python -m tools.openapi` and commit what it writes"


async def test_the_server_answers_with_the_same_document(cluster: Cluster, asking: httpx2.AsyncClient) -> None:
    answer = await asking.get("/api/openapi.json", headers={"Authorization": f"Bearer {cluster.token}"})
    assert answer.json() == json.loads(text())


def test_every_endpoint_is_in_the_document() -> None:
    document = json.loads(text())
    written = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert written == {(e.method, e.path) for e in endpoints()}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["summary"] for operation in operations)


@pytest.mark.parametrize("endpoint", endpoints(), ids=lambda e: f"{e.method} {e.path}")
def test_an_operation_names_its_parameters_and_bodies(endpoint: Endpoint) -> None:
    operation = json.loads(text())["paths"][endpoint.path][endpoint.method.lower()]
    named = {(p["in"], p["name"]) for p in operation["parameters"]}
    keys = {("header", "Idempotency-Key")} if endpoint.creates else set()
    assert named == keys | {("path", p) for p in _PART.findall(endpoint.path)} | {("query", q) for q in endpoint.query}
    assert ("requestBody" in operation) == (endpoint.body is not None)
    assert ("content" in operation["responses"][str(endpoint.status)]) == (endpoint.response is not None)


def test_every_reference_leads_somewhere() -> None:
    document = json.loads(text())
    found = set(references(document))
    assert found
    for reference in found:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
        assert place


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from references(item)

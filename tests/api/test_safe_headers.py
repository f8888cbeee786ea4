"""Every response says that its type is not to be guessed and that it is not to be stored."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.app import endpoints
from mainspring.web.render import STATIC, VERSION
from tests.conftest import Cluster
from tests.support.pages import sign_in

pytestmark = pytest.mark.anyio

_PART = re.compile(r"\{(\w+)\}")
SAFE = [("cache-control", ["no-store"]), ("x-content-type-options", ["nosniff"])]


def safe_headers_of(answer: httpx2.Response) -> list[tuple[str, list[str]]]:
    return [(name, answer.headers.get_list(name)) for name, _ in SAFE]


async def test_every_endpoint_sends_them_whatever_it_answers(
    http: httpx2.AsyncClient, stranger: httpx2.AsyncClient
) -> None:
    for endpoint in endpoints():
        path = _PART.sub(str(uuid4()), endpoint.path)
        for client in (http, stranger):
            async with client.stream(endpoint.method, path) as answer:
                assert safe_headers_of(answer) == SAFE, (endpoint.method, path, answer.status_code)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/login", "/nothing", "/api/v1/jobs/", "/api/v1/nothing", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
async def test_other_paths_send_them_too(stranger: httpx2.AsyncClient, method: str, path: str) -> None:
    assert safe_headers_of(await stranger.request(method, path)) == SAFE


async def test_a_definition_has_them_with_its_etag(http: httpx2.AsyncClient) -> None:
    job = {"name": "tagged", "task": {"kind": "shell", "argv": ["true"]}}
    made = await http.post("/api/v1/jobs", json=job)
    read = await http.get("/api/v1/jobs/tagged")
    assert safe_headers_of(made) == safe_headers_of(read) == SAFE
    assert made.headers["etag"] == read.headers["etag"]
    stale = await http.patch("/api/v1/jobs/tagged", json={"priority": 3}, headers={"If-Match": '"other"'})
    assert stale.status_code == 412 and safe_headers_of(stale) == SAFE
    fresh = await http.patch("/api/v1/jobs/tagged", json={"priority": 3}, headers={"If-Match": read.headers["etag"]})
    assert fresh.status_code == 200 and safe_headers_of(fresh) == SAFE


async def test_a_browser_may_keep_static_files(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    stranger.headers["sec-fetch-site"] = "same-origin"
    await sign_in(stranger, cluster.token)
    answer = await stranger.get(f"/static/{next(iter(STATIC))}?v={VERSION}")
    assert answer.headers.get_list("cache-control") == ["private, max-age=31536000, immutable"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]

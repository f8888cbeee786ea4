"""Every endpoint answers large, deep and strange requests with a client error, in little CPU time."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from mainspring import service
from mainspring.api.app import endpoints
from mainspring.api.auth import issue_token
from tests.conftest import Cluster
from tests.fuzz.inputs import Bodies
from tests.support.growth import LIMIT_S, LONG_SECONDS, slowness
from tests.support.seeds import SEED

ENDPOINTS = [e for e in endpoints() if "{name}" not in e.path or e.method != "GET"]
WITH_BODY = [e for e in ENDPOINTS if e.body is not None]
WITH_QUERY = [
    e for e in ENDPOINTS if e.query and e.method == "GET" and "stream" not in e.path and "wait" not in e.query
]
NUMBERS = ["9" * 19, "9" * 5000, "-1", "1e400", "²", "%00", "a" * 3000, "1." + "9" * 400]
PLACES = {"ref": "x", "name": "x", "version": "1", "step": "a", "cursor": "x"}
SIZE = 300_000


@pytest.fixture
def failed_loops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The background work that failed meanwhile: an accepted request may stop what comes after it."""
    failed: list[str] = []

    def warning(event: str, **more: Any) -> None:
        if event == "loop.failed":
            failed.append(f"{more['loop']}: {more['error']}")

    monkeypatch.setattr(service.log, "warning", warning)
    return failed


@pytest.fixture
async def http(cluster: Cluster, failed_loops: list[str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with cluster.database.connection() as connection:
        scopes = ("admin", "write", "operate", "read", "worker")
        token = await issue_token(connection, tenant=1, name=f"fuzz {time.monotonic_ns()}", scopes=scopes)
    headers = {"Authorization": f"Bearer {token}", "Mainspring-Protocol": "1", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=60) as http:
        yield http
    assert failed_loops == []


def path_of(template: str) -> str:
    for name, value in PLACES.items():
        template = template.replace("{" + name + "}", value)
    return template.replace("{", "").replace("}", "")


async def asked(http: httpx2.AsyncClient, method: str, path: str, **more: Any) -> str:
    """Send a request; return what is wrong with the answer, or with what it cost."""
    best, sent = 9.9, len(more.get("content", b""))
    for _ in range(5):  # the client, and whatever else runs in this process, counts as well
        begin = time.process_time()
        answer = await http.request(method, path, **more)
        best = min(best, time.process_time() - begin)
        if answer.status_code >= 500:
            return f"{method} {path[:100]}: {answer.status_code} {answer.text[:300]}"
        if sent and len(answer.content) > 100_000 + 10 * sent:
            return f"{method} {path[:100]}: an answer of {len(answer.content):,} bytes to a request of {sent:,}"
        if best < LIMIT_S * slowness():
            return ""
    return f"{method} {path[:100]}: {best:.2f} s of CPU time"


async def body_findings(
    http: httpx2.AsyncClient, endpoint: Any, rng: random.Random, count: int, size: int
) -> list[str]:
    places = list(Bodies(endpoint.body).large().items())
    found = []
    for place, make in rng.sample(places, min(count, len(places))):
        content = msgspec.json.encode(make(size))
        if wrong := await asked(http, endpoint.method, path_of(endpoint.path), content=content):
            found.append(f"{place}: {wrong}")
    return found


RAW = {
    "an integer of 20 digits": b'{"name": 99999999999999999999}',
    "an integer of 5,000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "a number that is too large": b'{"x": 1e400}',
    "large integers in a list": b"[" + b"9" * 30 + b"]",
    "brackets": b"[" * 100_000,
    "quotes": b'"' * 300_000,
    "empty lists": b"[" + b"[]," * 300_000 + b"[]]",
    "blanks": b" " * 500_000,
    "escapes": b'{"x": "' + b"\\u0000" * 50_000 + b'"}',
    "bytes": bytes(range(256)) * 1000,
}


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=lambda e: f"{e.method} {e.path}")
async def test_bodies(http: httpx2.AsyncClient, endpoint: Any) -> None:
    rng = random.Random(f"{SEED}{endpoint.path}")
    wrong = [
        f"{name}: {found}"
        for name, content in RAW.items()
        if (found := await asked(http, endpoint.method, path_of(endpoint.path), content=content))
    ]
    assert wrong + await body_findings(http, endpoint, rng, 5, SIZE) == []


@pytest.mark.parametrize("endpoint", WITH_QUERY, ids=lambda e: f"{e.method} {e.path}")
async def test_queries(http: httpx2.AsyncClient, endpoint: Any) -> None:
    wrong = []
    for name in endpoint.query:
        for value in NUMBERS:
            wrong.append(await asked(http, endpoint.method, f"{path_of(endpoint.path)}?{name}={value}"))
    assert [found for found in wrong if found] == []


async def test_paths(http: httpx2.AsyncClient) -> None:
    wrong = []
    for endpoint in ENDPOINTS:
        if "{" in endpoint.path and endpoint.method == "GET":
            for value in ("9" * 5000, "%00", "²" * 9, "a" * 4000):
                begin = endpoint.path.partition("{")[0]
                rest = endpoint.path.partition("}")[2]
                wrong.append(await asked(http, "GET", path_of(f"{begin}{value}{rest}")))
    assert [found for found in wrong if found] == []


@pytest.mark.skipif(not LONG_SECONDS, reason="the long form: make fuzz")
async def test_random_bodies_for_long(http: httpx2.AsyncClient) -> None:
    rng, until = random.Random(SEED), time.monotonic() + LONG_SECONDS / 3
    while time.monotonic() < until:
        assert await body_findings(http, rng.choice(WITH_BODY), rng, 1, rng.choice((20_000, SIZE, 950_000))) == []

"""The RateLimit headers of every authenticated response, and Retry-After of every 429 and 503."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.app import endpoints
from mainspring.api.auth import issue_token
from mainspring.api.problem import problem_of
from mainspring.api.rate_limit import RateLimiter, RequestLimits
from mainspring.domain.errors import TooMany, Unavailable
from tests.conftest import Cluster, started
from tests.support.clocks import ManualClock
from tests.support.pages import sign_in

pytestmark = pytest.mark.anyio

_PART = re.compile(r"\{(\w+)\}")
_LEFT = re.compile(r'"requests";r=(\d+);t=(\d+)')
POLICY = '"requests";q=400;w=2'


def left(answer: httpx2.Response) -> tuple[int, int]:
    (found,) = answer.headers.get_list("ratelimit")
    match = _LEFT.fullmatch(found)
    assert match is not None, found
    return int(match[1]), int(match[2])


@pytest.fixture(scope="module")
async def narrow(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, rate_limit=200, roles=("api",)) as cluster:
        yield cluster


def calls(cluster: Cluster, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30)


async def test_every_route_sends_them_whatever_it_answers(narrow: Cluster) -> None:
    async with calls(narrow, narrow.token) as http, calls(narrow, "ms_none") as stranger:
        for endpoint in endpoints():
            path = _PART.sub(str(uuid4()), endpoint.path)
            counted = endpoint.scope != "worker"
            async with http.stream(endpoint.method, path) as answer:
                where = (endpoint.method, path, answer.status_code)
                assert answer.headers.get_list("ratelimit-policy") == ([POLICY] if counted else []), where
                assert not counted or 0 <= left(answer)[0] < 400, where
        assert "ratelimit" not in (await stranger.get("/api/v1/jobs")).headers


async def test_what_is_left_decreases_until_requests_are_refused(database_url: str) -> None:
    async with started(database_url, rate_limit=0.01, roles=("api",)) as slow:
        async with slow.database.connection() as connection:
            tokens = [await issue_token(connection, tenant=1, name=n, scopes=("read",)) for n in "ab"]
        async with calls(slow, tokens[0]) as one, calls(slow, tokens[1]) as two:
            first = await one.get("/api/v1/jobs")
            assert first.headers["ratelimit-policy"] == '"requests";q=1;w=100'
            assert (first.status_code, *left(first)) == (200, 0, 100)
            refused = await one.get("/api/v1/jobs")
            assert (refused.status_code, left(refused)[0]) == (429, 0)
            assert 98 <= int(refused.headers["retry-after"]) <= 100
            assert (await two.get("/api/v1/jobs")).status_code == 200, "another token has its own"
            page = httpx2.AsyncClient(base_url=slow.url, headers={"accept": "text/html"}, trust_env=False, timeout=30)
            async with page as browser:
                browser.headers["sec-fetch-site"] = "same-origin"
                await sign_in(browser, slow.token)
                answers = [await browser.get("/jobs") for _ in range(2)]
            assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) >= 98


async def test_without_a_limit_there_are_none(database_url: str) -> None:
    async with started(database_url, rate_limit=0, roles=("api",)) as open_, calls(open_, open_.token) as http:
        answer = await http.get("/api/v1/jobs")
    assert answer.status_code == 200 and not [name for name in answer.headers if name.startswith("ratelimit")]


def test_refusals_say_when_to_try_again() -> None:
    assert problem_of(TooMany("no", retry_after_s=7.2)).headers["retry-after"] == "8"
    assert problem_of(Unavailable("no")).headers["retry-after"] == "1"


def test_what_is_left_follows_the_clock() -> None:
    clock = ManualClock()
    rate = RateLimiter(5, clock=clock)
    assert (rate.quota, rate.left("a")) == (10, (10, 0))
    for _ in range(10):
        rate.take("a")
    assert rate.left("a") == (0, 2)
    clock.at += 0.4
    assert rate.left("a") == (2, 2)
    clock.at += 3600
    assert rate.left("a") == (10, 0)


def test_they_cost_a_few_microseconds_of_cpu() -> None:
    """A request costs about a millisecond; the headers must stay in its noise."""
    limits, token = RequestLimits(10_000.0), uuid4()
    spent = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(2_000):
            limits.headers(token)
        spent.append((time.process_time() - began) / 2_000)
    assert min(spent) < 20e-6, spent
    print(f"RateLimit headers: {min(spent) * 1e6:.2f} µs CPU a request")

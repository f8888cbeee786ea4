"""Request rate limits: reason and Retry-After in the response, and no effect on other callers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.api.rate_limit import MOST_KEYS, TOKENS_PER_TENANT, RateLimiter, RequestLimits
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.domain.errors import TooMany
from mainspring.worker.transport.api_client import ApiAddress
from tests.conftest import Cluster, started
from tests.support.clocks import ManualClock
from tests.support.pages import sign_in
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio

PER_S = 5


def test_so_many_at_once_and_so_many_a_second() -> None:
    clock = ManualClock()
    rate = RateLimiter(PER_S, clock=clock)
    assert [rate.take("a") for _ in range(2 * PER_S)] == [0.0] * 2 * PER_S
    assert rate.take("a") == pytest.approx(1 / PER_S)
    assert rate.take("b") == 0.0, "each has its own"
    clock.at += 1 / PER_S
    assert rate.take("a") == 0.0 and rate.take("a") > 0
    clock.at += 3600
    assert [rate.take("a") == 0.0 for _ in range(2 * PER_S + 1)].count(True) == 2 * PER_S, "nothing is saved up"


def test_whoever_has_not_asked_for_a_while_is_forgotten() -> None:
    clock = ManualClock()
    rate = RateLimiter(PER_S, clock=clock)
    for n in range(3 * MOST_KEYS):
        clock.at += 0.01
        rate.take(n)
    assert len(rate._clear_at) <= MOST_KEYS


def test_no_limit_is_no_limit() -> None:
    rates = RequestLimits(0.0)
    for _ in range(10_000):
        rates.admit_unauthenticated("127.0.0.1")
    rates = RequestLimits(1.0, clock=ManualClock())
    for _ in range(40):
        rates.admit_unauthenticated("127.0.0.1")
    with pytest.raises(TooMany):
        rates.admit_unauthenticated("127.0.0.1")


def test_tokens_of_a_user_and_of_a_tenant_share_a_limit() -> None:
    limits, user = RequestLimits(float(PER_S), clock=ManualClock()), uuid4()
    for _ in range(2 * PER_S):
        limits.admit(uuid4(), user=user, tenant=1)
    with pytest.raises(TooMany, match="the user of this token exceeds 5 requests"):
        limits.admit(uuid4(), user=user, tenant=1)
    for _ in range(2 * PER_S * (TOKENS_PER_TENANT - 1)):
        limits.admit(uuid4(), user=uuid4(), tenant=1)
    with pytest.raises(TooMany, match="the tenant exceeds 100 requests"):
        limits.admit(uuid4(), tenant=1)
    limits.admit(uuid4(), tenant=2)


async def test_tokens_of_a_user_share_a_limit_over_http(narrow: Cluster) -> None:
    async with narrow.client() as client:
        await client.create_user(wire.NewUser(name="busy", role="viewer"))
        tokens = [(await client.issue_token(wire.NewToken(name=f"t{n}", user="busy"))).token for n in range(3)]
    async with httpx2.AsyncClient(base_url=narrow.url, trust_env=False, timeout=30) as http:
        headers = [{"Authorization": f"Bearer {token}"} for token in tokens for _ in range(PER_S)]
        answers = await asyncio.gather(*[http.get("/api/v1/jobs", headers=each) for each in headers])
    refused = [answer.json()["detail"] for answer in answers if answer.status_code == 429]
    assert refused and all("the user of this token" in detail for detail in refused)


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, rate_limit=PER_S, roles=("api",)) as cluster:
        yield cluster


@pytest.mark.requirement(127)
async def test_bad_input_bad_tokens_and_floods_are_refused(narrow: Cluster) -> None:
    def http(token: str, **more: str) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}", **more}
        return httpx2.AsyncClient(base_url=narrow.url, headers=headers, trust_env=False, timeout=30)

    async with narrow.database.connection() as connection:
        other = await issue_token(connection, tenant=1, name="other", scopes=("read",))
    worker = ApiAddress(narrow.url, narrow.worker_token).headers
    async with http(narrow.token) as flood, http(other) as calm, http("ms_nobody") as stranger, remote(narrow) as mine:
        wrong = await flood.post("/api/v1/jobs", json={"name": "x", "task": {"kind": "shel"}})
        assert wrong.status_code == 422 and wrong.json()["errors"][0]["pointer"] == "/task/kind"
        unknown = await stranger.get("/api/v1/jobs")
        assert unknown.status_code == 401 and unknown.headers["www-authenticate"] == "Bearer"

        answers = await asyncio.gather(*[flood.get("/api/v1/jobs") for _ in range(100)])
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) == {200, 429} and statuses[429] >= 20, statuses
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["code"] == "rate_limited" and "5 requests per second" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        assert (await calm.get("/api/v1/jobs")).status_code == 200, "another token has its own"

        # Workers are not counted, however often they come.
        beat = encode(wire.Heartbeat(session_id=mine.session_id, running=[]))
        async with httpx2.AsyncClient(base_url=narrow.url, headers=worker, trust_env=False, timeout=30) as fleet:
            beats = await asyncio.gather(
                *[fleet.post("/api/v1/worker/heartbeat", content=beat) for _ in range(10 * PER_S)]
            )
        assert {answer.status_code for answer in beats} == {200}

        # An address that keeps trying tokens is told to wait, and does no harm to those whose token is good.
        tries = await asyncio.gather(*[stranger.get("/api/v1/jobs") for _ in range(400)])
        assert {answer.status_code for answer in tries} == {401, 429}
        assert (await calm.get("/api/v1/jobs")).status_code == 200


async def test_pages_are_counted_too(narrow: Cluster) -> None:
    headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
    async with httpx2.AsyncClient(base_url=narrow.url, headers=headers, trust_env=False, timeout=30) as browser:
        await sign_in(browser, narrow.token)
        answers = await asyncio.gather(*[browser.get("/jobs") for _ in range(60)])
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused and "exceeds 5 requests per second" in refused[0].text


async def test_the_client_waits_as_long_as_it_is_told(narrow: Cluster) -> None:
    async with AsyncClient(narrow.url, narrow.token) as client:
        found = await asyncio.gather(*[client.jobs() for _ in range(25)])
    assert len(found) == 25

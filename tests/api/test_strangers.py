"""Attempts to sign in, wrong credentials and health checks of strangers cost a bounded number of queries."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import httpx2
import pytest

from mainspring.api.auth import CONCURRENT_NEW_LOOKUPS, issue_token
from mainspring.api.rate_limit import FAILED_LOGINS_AT_ONCE, MOST_KEYS, UNAUTHENTICATED_PER_S, RateLimiter
from mainspring.store import browser_sessions, tokens
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.clocks import ManualClock
from tests.support.pages import NAVIGATION, Page, open_page, posted, sign_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    """One for each test, because what an address has tried counts for the next. Its limits see no time pass."""
    async with started(database_url, roles=("api",)) as cluster:
        limits = cluster.context.rates
        for rate in (limits._unauthenticated, limits._logins):
            rate._clock = ManualClock()
        yield cluster


@pytest.fixture
async def stranger(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, trust_env=False, timeout=60) as browser:
        yield browser


def counted(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> Counter[str]:
    calls: Counter[str] = Counter()
    original = getattr(module, name)

    async def count(*args: object, **named: object) -> object:
        calls[name] += 1
        return await original(*args, **named)

    monkeypatch.setattr(module, name, count)
    return calls


async def test_attempts_to_sign_in_are_bounded(
    cluster: Cluster, stranger: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = counted(monkeypatch, tokens, "token_by_digest")
    form = posted(Page((await stranger.get("/login")).text))
    nonce = stranger.cookies["mainspring_login"]
    answers = []
    for n in range(FAILED_LOGINS_AT_ONCE + 10):
        stranger.cookies.clear()
        stranger.cookies.set("mainspring_login", nonce, path="/login")
        answers.append(await stranger.post("/login", data=form | {"token": f"ms_{n}"}))
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {401: FAILED_LOGINS_AT_ONCE, 429: 10}
    assert queries["token_by_digest"] == statuses[401], "a refused attempt costs no query"
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1 and "too many failed attempts" in refused.text.lower()


async def test_attempts_with_links_are_bounded(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    auth = cluster.context.auth
    keys = [auth._new_secret("link") for _ in range(FAILED_LOGINS_AT_ONCE + 10)]
    statuses = Counter([(await stranger.get("/login", params={"k": key})).status_code for key in keys])
    assert statuses == {401: FAILED_LOGINS_AT_ONCE, 429: 10}


async def test_somebody_with_a_token_in_use_can_sign_in_meanwhile(
    cluster: Cluster, stranger: httpx2.AsyncClient
) -> None:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    assert (await stranger.get("/api/v1/jobs", headers=headers)).status_code == 200
    for n in range(FAILED_LOGINS_AT_ONCE + 10):
        await sign_in(stranger, f"ms_{n}")
    assert (await sign_in(stranger, cluster.token)).status_code == 303
    await open_page(stranger, "/jobs")


async def test_wrong_tokens_cost_a_bounded_number_of_queries(
    cluster: Cluster, stranger: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.database.connection() as connection:
        used = await issue_token(connection, tenant=1, name="in use", scopes=("read",))
    assert (await get_jobs(stranger, used)).status_code == 200
    queries = counted(monkeypatch, tokens, "token_by_digest")
    tries = 500
    answers = await asyncio.gather(*[get_jobs(stranger, f"ms_{n}") for n in range(tries)])
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {401: 2 * UNAUTHENTICATED_PER_S, 429: tries - 2 * UNAUTHENTICATED_PER_S}
    most = statuses[401] + CONCURRENT_NEW_LOOKUPS
    assert queries["token_by_digest"] <= most, "an address over its limit is not looked up"
    assert (await get_jobs(stranger, used)).status_code == 200, "a token in use still works from that address"


async def get_jobs(http: httpx2.AsyncClient, token: str) -> httpx2.Response:
    return await http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"})


async def test_wrong_cookies_cost_no_query(
    cluster: Cluster, stranger: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = counted(monkeypatch, browser_sessions, "browser_session_by_digest")
    for n in range(20):
        answer = await stranger.get("/api/v1/jobs", headers={"cookie": f"mainspring_session=x{n}.y"})
        assert answer.status_code == 401
    assert not queries


async def test_health_checks_of_a_moment_are_one_query(
    cluster: Cluster, stranger: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = Counter[str]()
    original = Database.connection

    def connection(self: Database) -> object:
        lent["connections"] += 1
        return original(self)

    monkeypatch.setattr(Database, "connection", connection)
    answers = await asyncio.gather(*[stranger.get("/readyz") for _ in range(300)])
    assert {answer.status_code for answer in answers} == {200}
    assert lent["connections"] < 100


def test_many_addresses_do_not_make_the_limit_slow() -> None:
    """Each key is active, so none can be forgotten for being idle; the work is counted in copied entries."""
    clock = ManualClock()
    rate = RateLimiter(UNAUTHENTICATED_PER_S, clock=clock)
    copied = 0
    before = rate._clear_at
    for n in range(5 * MOST_KEYS):
        rate.take(n)
        if rate._clear_at is not before:
            copied += len(rate._clear_at)
            before = rate._clear_at
    assert len(rate._clear_at) <= MOST_KEYS and copied <= 5 * MOST_KEYS

"""One request rate for several api processes, over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.api.rate_limit import TOKENS_PER_TENANT, RequestLimits
from mainspring.backends.engines import open_rates
from mainspring.backends.redis_rates import RedisRates
from mainspring.domain.errors import Invalid
from mainspring.embedded.server import EmbeddedServer
from mainspring.ports import Budget
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.api_processes import api_processes
from tests.support.clocks import ManualClock
from tests.support.engine_servers import RedisServer
from tests.support.processes import until

pytestmark = pytest.mark.anyio

SLOW = 0.01
"""Requests per second: none is admitted again during a test."""


@pytest.fixture
async def rates(redis: RedisServer) -> AsyncIterator[tuple[RedisRates, RedisRates]]:
    """The links of two processes."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            opened = open_rates(redis.url, prefix="mainspring-test")
            assert opened is not None
            await opened.start()
            stack.push_async_callback(opened.stop)
            await opened.ready()
            found.append(opened)
        yield found[0], found[1]


async def test_processes_take_from_one_budget(rates: tuple[RedisRates, RedisRates]) -> None:
    one, two = (RequestLimits(SLOW, shared=shared) for shared in rates)
    token, user = uuid4(), uuid4()
    assert (await one.count(token, user=user, tenant=1)).refusal is None
    refused = await two.count(token, user=user, tenant=1)
    assert "this token exceeds 0.01 requests per second" in str(refused.refusal)
    assert dict(refused.headers)[b"ratelimit"] == b'"requests";r=0;t=100'
    other = await two.count(uuid4(), user=user, tenant=1)
    assert "the user of this token exceeds" in str(other.refusal)
    # Requests that the user's budget refuses do not count against the tenant.
    counted = [(await two.count(uuid4(), tenant=1)).refusal for _ in range(TOKENS_PER_TENANT)]
    assert counted[:-1] == [None] * (TOKENS_PER_TENANT - 1) and "the tenant exceeds 0.2" in str(counted[-1])
    assert (await one.count(uuid4(), tenant=2)).refusal is None


async def test_a_burst_of_many_tasks_is_counted_exactly(rates: tuple[RedisRates, RedisRates]) -> None:
    budget = Budget("token:x", 100.0, 5_000.0)
    taken = await asyncio.gather(*(rates[n % 2].take([budget]) for n in range(200)))
    assert sum(found is not None and found[0].wait_s == 0 for found in taken) == 50


async def test_a_budget_refills_by_the_clock_of_redis(rates: tuple[RedisRates, RedisRates]) -> None:
    budget = Budget("token:y", 0.05, 0.05)
    first = await rates[0].take([budget])
    second = await rates[1].take([budget])
    assert first is not None and first[0].wait_s == 0
    if second is not None and second[0].wait_s:  # a busy machine may need longer than the gap
        assert second[0].wait_s <= 0.05
    admitted = 0
    while not admitted:
        found = await rates[1].take([budget])
        admitted += found is not None and found[0].wait_s == 0


async def test_a_budget_from_after_a_step_of_the_clock_is_only_used_up(
    rates: tuple[RedisRates, RedisRates],
) -> None:
    link = rates[0]._link
    now = int((await link.call("TIME"))[0])
    await link.call("SET", rates[0]._prefix + "token:z", (now + 3600) * 1_000_000)
    found = await rates[0].take([Budget("token:z", 1.0, 10.0)])
    assert found is not None and 0 < found[0].wait_s <= 1.0


async def test_each_process_counts_while_redis_is_lost(
    rates: tuple[RedisRates, RedisRates], redis: RedisServer
) -> None:
    limits = [RequestLimits(SLOW, shared=shared, clock=ManualClock()) for shared in rates]
    token = uuid4()
    assert (await limits[0].count(token)).refusal is None
    redis.freeze()
    for process in limits:
        assert (await process.count(token)).refusal is None, "an empty budget of its own"
        assert (await process.count(token)).refusal is not None
    await until("the loss is noticed", lambda: not (rates[0].connected or rates[1].connected), within_s=30)
    redis.thaw()
    await until("Redis is back", lambda: rates[0].connected and rates[1].connected, within_s=30)
    for process in limits:
        assert (await process.count(token)).refusal is not None, "Redis has kept the common budget"
    await redis.restart_empty()
    await until("the loss is noticed", lambda: not rates[0].connected, within_s=30)
    await until("Redis is back", lambda: rates[0].connected and rates[1].connected, within_s=30)
    admitted = [(await process.count(token)).refusal is None for process in limits]
    assert admitted == [True, False], "an empty Redis has full budgets"


async def test_credentials_are_checked_at_the_start(locked_redis: RedisServer) -> None:
    with pytest.raises(Invalid, match=r"--rate-limiter redis://127\.0\.0\.1:\d+: "):
        await RedisRates(locked_redis.url.replace("correct", "wrong"), prefix="p").start()


async def test_two_api_processes_share_one_rate(postgres: EmbeddedServer, redis: RedisServer, tmp_path: Path) -> None:
    url = await clone(postgres)
    async with Database(url, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="test", scopes=("read",))
    settings = {"MAINSPRING_RATE_LIMIT": "0.05", "MAINSPRING_RATE_LIMITER": redis.url}
    async with (
        api_processes(tmp_path, url, 2, **settings) as (one, two),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30) as http,
    ):
        first = await http.get(f"{one}/api/v1/jobs")
        assert first.status_code == 200 and first.headers["ratelimit"].startswith('"requests";r=0;')
        second = await http.get(f"{two}/api/v1/jobs")
        assert second.status_code == 429 and int(second.headers["retry-after"]) <= 20
        assert second.headers["ratelimit-policy"] == '"requests";q=1;w=20'
        redis.kill()
        again = await http.get(f"{two}/api/v1/jobs")
        assert again.status_code == 200, "its own budget has not been used"
        assert (await http.get(f"{two}/api/v1/jobs")).status_code == 429

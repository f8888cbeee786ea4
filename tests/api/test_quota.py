"""The quota of schedules that a token may create per hour."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.auth import issue_token
from tests.conftest import Cluster, started

pytestmark = pytest.mark.anyio

QUOTA = 3


def spec(**more: Any) -> dict[str, Any]:
    return {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "schedule": {"every": "10h"}, **more}


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, schedule_quota=QUOTA, roles=("api",)) as cluster:
        yield cluster


@asynccontextmanager
async def caller(cluster: Cluster, quota: int | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody with a token of their own."""
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="somebody", scopes=("read", "write"), schedule_quota=quota)
    headers = {"Authorization": f"Bearer {token}"}
    base = f"{cluster.url}/api/v1"
    async with httpx2.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=30) as http:
        yield http


@pytest.mark.requirement(128)
async def test_a_token_makes_so_many_schedules_and_is_told_when_it_may_again(narrow: Cluster) -> None:
    async with caller(narrow) as http, caller(narrow) as other:
        assert (await http.post("/jobs", json=spec(schedule={"every": "never"}))).status_code == 422
        made = [(await http.post("/jobs", json=spec())) for _ in range(QUOTA)]
        assert [answer.status_code for answer in made] == [201] * QUOTA, "what was refused before is not counted"
        async with narrow.database.connection() as connection:
            now: datetime = await connection.fetchval("SELECT db_now()")
        refused = await http.post("/jobs", json=spec())
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_used_up")
        reset_at = datetime.fromisoformat(refused.json()["detail"].rpartition(" until ")[2])
        assert timedelta(minutes=59) < reset_at - now <= timedelta(hours=1)
        assert 59 * 60 < int(refused.headers["retry-after"]) <= 3600
        assert refused.json()["errors"][0]["pointer"] == "/schedule"

        plain = spec(schedule=None)
        assert (await http.post("/jobs", json=plain)).status_code == 201, "a job on demand is no schedule"
        late = await http.patch(f"/jobs/{plain['name']}", json={"schedule": {"every": "1h"}})
        assert late.status_code == 429, "nor is there a way around"
        flow = {"name": "flow", "steps": {"a": {"task": {"kind": "noop"}}}, "schedule": {"every": "1h"}}
        assert (await http.post("/workflows", json=flow)).status_code == 429
        mine = made[0].json()["name"]
        change = await http.patch(f"/jobs/{mine}", json={"schedule": {"every": "2h"}})
        assert change.status_code == 200, "a change makes none"
        assert (await other.post("/jobs", json=spec())).status_code == 201, "each token has its own"

        async with narrow.database.connection() as connection:
            await connection.execute("UPDATE token_grants SET began_at = began_at - interval '1 hour'")
        assert (await http.post("/jobs", json=spec())).status_code == 201, "the hour is over"


async def test_a_token_may_have_a_quota_of_its_own(narrow: Cluster) -> None:
    async with caller(narrow, 20) as many, caller(narrow, 0) as none:
        answers = [(await many.post("/jobs", json=spec())).status_code for _ in range(21)]
        assert answers == [201] * 20 + [429]
        assert (await none.post("/jobs", json=spec())).status_code == 429


async def test_all_api_processes_together_grant_no_more(narrow: Cluster, database_url: str) -> None:
    async with started(database_url, schedule_quota=QUOTA, roles=("api",)) as second, caller(narrow, 40) as http:
        elsewhere = str(http.base_url).replace(narrow.url, second.url)
        answers = await asyncio.gather(
            *[http.post(f"{base}jobs", json=spec()) for _ in range(30) for base in (str(http.base_url), elsewhere)]
        )
    found = Counter(answer.status_code for answer in answers)
    assert set(found) == {201, 429} and 30 <= found[201] <= 40, found

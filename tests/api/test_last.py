"""`@last`: the execution that the caller requested last, not the one with the newest id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import script
from tests.support.api_tokens import Issue

pytestmark = pytest.mark.anyio

YEARS_AHEAD = "2090-01-01T00:00:00Z"


async def test_a_fire_years_ahead_is_not_the_last(client: AsyncClient) -> None:
    job = await client.create_job(script("true"))
    made = await client.trigger(job.name)
    await client.create_job(script("true", schedule={"at": YEARS_AHEAD}))
    newest = (await client.executions(limit=1)).items[0]
    assert newest.fire_at.year == 2090
    assert (await client.execution("@last")).execution_id == made.execution_id
    assert (await client.last_execution()).execution_id == made.execution_id
    assert (await client.why("@last")).execution_id == made.execution_id


async def test_each_user_has_an_own_last_one(cluster: Cluster, client: AsyncClient, issue: Issue) -> None:
    job = await client.create_job(script("true"))
    async with (
        AsyncClient(cluster.url, await issue("write", "read")) as one,
        AsyncClient(cluster.url, await issue("write", "read")) as other,
        AsyncClient(cluster.url, await issue("read")) as reader,
    ):
        mine = await one.trigger(job.name)
        theirs = await other.trigger(job.name)
        assert (await one.last_execution()).execution_id == mine.execution_id
        assert (await other.last_execution()).execution_id == theirs.execution_id
        assert (await reader.last_execution()).execution_id == theirs.execution_id


async def test_one_that_the_user_requested_for_later_counts_from_the_request(client: AsyncClient) -> None:
    job = await client.create_job(script("true"))
    soon = datetime.now(UTC) + timedelta(hours=1)
    later = await client.trigger(job.name, wire.RunNow(at=soon, reason=""))
    assert (await client.last_execution()).execution_id == later.execution_id
    again = await client.trigger(job.name, wire.RunNow(reason=""))
    assert (await client.last_execution()).execution_id == again.execution_id


async def test_without_executions_it_is_not_found_and_other_tenants_have_none(
    client: AsyncClient, neighbour: AsyncClient
) -> None:
    job = await client.create_job(script("true"))
    await client.trigger(job.name)
    with pytest.raises(NotFound, match="no executions yet"):
        await neighbour.execution("@last")
    await neighbour.create_job(script("true", schedule={"at": YEARS_AHEAD}))
    assert (await neighbour.last_execution()).fire_at.year == 2090

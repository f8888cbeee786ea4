"""Names that are mistyped, or of deleted jobs."""

from __future__ import annotations

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import script

pytestmark = pytest.mark.anyio


async def test_a_mistyped_name_gets_a_suggestion_everywhere(client: AsyncClient) -> None:
    await client.create_job(script("true") | {"name": "hello-names"})
    calls = [
        client.job("helo-names"),
        client.trigger("helo-names"),
        client.trigger("helo-names", wire.RunNow(reason="")),
        client.fires("hello-name"),
        client.executions(job="hello-namse"),
        client.executions(filter="job:hello-namse"),
        client.dead_letters(job="hello-namse"),
        client.stats("xello-names"),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="did you mean 'hello-names'") as refused:
            await call
        assert refused.value.problems[0].hint == "did you mean 'hello-names'?"


async def test_other_tenants_are_not_suggested(client: AsyncClient, neighbour: AsyncClient) -> None:
    await client.create_job(script("true") | {"name": "secret-names"})
    with pytest.raises(NotFound) as refused:
        await neighbour.job("secret-name")
    assert "secret-names" not in str(refused.value)


async def test_dead_letters_of_a_deleted_job_are_found_by_its_name(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("exit 3", retries={"max": 0}))
    async with cluster.worker():
        await client.wait((await client.trigger(job.name)).execution_id)
        await client.delete_job(job.name)
        assert [letter.job for letter in (await client.dead_letters(job=job.name)).items] == [job.name]
        # A new job takes the name: the name means both.
        await client.create_job(script("exit 4", retries={"max": 0}) | {"name": job.name})
        await client.wait((await client.trigger(job.name)).execution_id)
    assert len((await client.dead_letters(job=job.name)).items) == 2
    claimed = await client.claim_dead_letters(wire.DeadLetterClaim(job=job.name, limit=5))
    assert len(claimed.items) == 2
    planned = await client.dismiss_dead_letters(wire.DismissMany(job=job.name, reason="old", dry_run=True))
    assert planned.dismissed == 2
    assert (await client.dismiss_dead_letters(wire.DismissMany(job=job.name, reason="old"))).dismissed == 2
    assert (await client.dead_letters(job=job.name, state=["open"])).items == []


async def test_the_last_dead_letter_is_the_one_that_ended_last(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("exit 3", retries={"max": 0}))
    async with cluster.worker():
        await client.wait((await client.trigger(job.name)).execution_id)
        second = await client.wait((await client.trigger(job.name)).execution_id)
    assert (await client.dead_letter("@last")).dead_letter_id == second.execution_id


async def test_without_dead_letters_there_is_no_last_one(neighbour: AsyncClient) -> None:
    with pytest.raises(NotFound, match="no dead letters"):
        await neighbour.dead_letter("@last")

"""Whoever makes a change is recorded by the id of the token: its name can be anything, also another token's."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.principal import Principal, named
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

SCOPES = ("read", "write", "operate")


async def token_named(cluster: Cluster, name: str) -> tuple[str, UUID]:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name=name, scopes=SCOPES)
    return token, (await cluster.context.auth.by_token(token)).token_id


@pytest.mark.parametrize("name", ["the system", "test admin"])
async def test_a_token_with_the_name_of_another_is_told_apart(cluster: Cluster, client: AsyncClient, name: str) -> None:
    token, token_id = await token_named(cluster, name)
    job = f"marked-{uuid4()}"
    async with AsyncClient(cluster.url, token) as impostor:
        made = await impostor.create_job(JobSpec(name=job, task=NoopTask()))
        await client.pause_job(job, reason="by the real one")
        by_id = await impostor.audit(actor=str(token_id))
        by_name = await impostor.audit(actor=name, subject=job)
    assert made.created_by == f"{name} [{token_id.hex[:8]}]"
    assert [(e.action, e.actor, e.actor_id) for e in by_id.items] == [("job.create", name, token_id)]
    others = {e.actor_id for e in by_name.items if e.action == "job.pause"}
    assert token_id not in others and (name == "the system" or len(others) == 1)


def test_a_principal_is_its_name_and_the_start_of_its_id() -> None:
    one, other = uuid4(), uuid4()
    assert Principal("ops", one) != Principal("ops", other)
    assert Principal("ops", one) == named("ops", one) == f"ops [{one.hex[:8]}]"
    assert named("ops", None) == "ops"


@pytest.mark.parametrize("name", ["ops [3f2a9c1b]", "a]", "two\nlines", "\u202eops", "\x1b[2J", "", "x" * 101])
async def test_a_name_that_looks_like_another_with_its_id_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        await token_named(cluster, name)
    assert refused.value.problems[0].pointer == "/name"

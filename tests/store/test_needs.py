"""Needs are met by successes since the job's last execution, and each success counts once."""

from __future__ import annotations

from uuid import UUID

import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import needs
from mainspring.store.db import Taken
from mainspring.testing.clock import VirtualClock
from tests.support.settling import TENANT, SettlingBench


class Chain:
    """`child` needs `parent`; neither has a schedule."""

    def __init__(self, bench: SettlingBench, child: UUID, parent: UUID) -> None:
        self.bench, self.child, self.parent = bench, child, parent

    async def succeed(self) -> None:
        execution = await self.bench.submit(self.parent)
        session = await self.bench.session(600)
        await self.bench.claim(session)
        assert await self.bench.end(execution, session, "succeeded", duration_ms=1)

    async def is_ready(self) -> bool:
        async with self.bench.database.connection() as connection:
            return [ready.job_id for ready in await needs.ready_children(connection, limit=10)] == [self.child]


@pytest.fixture
async def chain(bench: SettlingBench) -> Chain:
    child, parent = [
        await jobs.create(bench.database, JobSpec(name=name, task=NoopTask()), tenant=TENANT, by="test")
        for name in ("child", "parent")
    ]
    async with bench.database.connection() as connection:
        await needs.insert_need(
            connection, tenant=TENANT, child=child, parent=parent, timeout_s=60, wait_s=None, by="test"
        )
    return Chain(bench, child, parent)


async def test_a_child_is_ready_after_a_success_that_is_then_used_up(chain: Chain, virtual: VirtualClock) -> None:
    assert not await chain.is_ready()
    await virtual.advance(seconds=1)
    await chain.succeed()
    assert await chain.is_ready()
    async with chain.bench.database.connection() as connection:
        await needs.use_up_needs(connection, tenant=TENANT + 1, child=chain.child)
        assert await chain.is_ready(), "of another tenant"
        await needs.use_up_needs(connection, tenant=TENANT, child=chain.child)
    assert not await chain.is_ready()


async def test_a_success_older_than_the_timeout_does_not_count(chain: Chain, virtual: VirtualClock) -> None:
    await virtual.advance(seconds=1)
    await chain.succeed()
    await virtual.advance(seconds=59)
    assert await chain.is_ready()
    await virtual.advance(seconds=2)
    assert not await chain.is_ready()
    async with chain.bench.database.connection() as connection:
        (need,) = await needs.needs_of(connection, tenant=TENANT, child=chain.child)
        assert need.state == "stale"
        assert await needs.needs_of(connection, tenant=TENANT + 1, child=chain.child) == []


async def test_a_need_is_unique_and_deleted_only_by_its_tenant(chain: Chain) -> None:
    pair = {"child": chain.child, "parent": chain.parent}
    async with chain.bench.database.connection() as connection:
        with pytest.raises(Taken):
            await needs.insert_need(connection, tenant=TENANT, timeout_s=None, wait_s=None, by="test", **pair)
        assert not await needs.delete_need(connection, tenant=TENANT + 1, **pair)
        assert [n.name for n in await needs.needing(connection, tenant=TENANT, parent=chain.parent)] == ["child"]
        assert await needs.delete_need(connection, tenant=TENANT, **pair)
        assert not await needs.delete_need(connection, tenant=TENANT, **pair)


async def test_a_path_leads_from_parent_to_child_only(chain: Chain) -> None:
    async with chain.bench.database.connection() as connection:
        found = await needs.path_between(connection, tenant=TENANT, start=chain.parent, end=chain.child)
        assert found == ["parent", "child"]
        assert await needs.path_between(connection, tenant=TENANT, start=chain.child, end=chain.parent) is None


async def test_a_freed_need_is_met_without_a_success(chain: Chain, virtual: VirtualClock) -> None:
    free = {"parent": chain.parent, "freed_as": "skipped", "by": "ann", "reason": "holiday"}
    await virtual.advance(seconds=1)
    async with chain.bench.database.transaction() as connection:
        assert await needs.free_needs(connection, tenant=TENANT + 1, **free) == []  # type: ignore[arg-type]
    assert not await chain.is_ready()
    async with chain.bench.database.transaction() as connection:
        assert await needs.free_needs(connection, tenant=TENANT, **free) == [chain.child]  # type: ignore[arg-type]
        (ready,) = await needs.ready_children(connection, limit=10)
    assert ready.not_run == ["parent"]

"""Jobs that are executed when others have succeeded."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.params import Param
from mainspring.intake import dependencies
from mainspring.store import needs, overlaps
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views.dependencies import dependencies_of
from mainspring.views.refs import job_row
from tests.support.dependent_jobs import Jobs
from tests.support.runs import TENANT

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(fresh: Database) -> Jobs:
    made = Jobs(fresh)
    for name in ("a", "b", "child"):
        await made.job(name)
    return made


async def test_a_job_is_executed_once_when_all_it_needs_have_succeeded(bench: Jobs) -> None:
    await bench.needs("child", "a")
    assert (await bench.needs("child", "b")).order == ["a", "b", "child"]
    await bench.execute("a")
    await bench.execute("a")
    assert await bench.queued() == [] and await bench.states("child") == {"a": "satisfied", "b": "pending"}
    await bench.execute("b")
    assert await bench.queued() == ["child"]
    assert await bench.queued() == [] and await bench.states("child") == {"a": "pending", "b": "pending"}
    await bench.execute("b")
    assert await bench.queued() == []
    await bench.execute("a")
    assert await bench.queued() == ["child"]


async def test_a_failure_does_not_count(bench: Jobs) -> None:
    await bench.needs("child", "a")
    await bench.execute("a", "failed")
    assert await bench.queued() == [] and await bench.states("child") == {"a": "failed"}


@pytest.mark.requirement(100)
async def test_a_success_too_long_ago_does_not_count(bench: Jobs, virtual: VirtualClock) -> None:
    await bench.needs("child", "a", timeout="1h")
    await bench.needs("child", "b")
    await virtual.advance(seconds=1)
    await bench.execute("a")
    await virtual.advance(hours=2)
    await bench.execute("b")
    assert await bench.queued() == [] and await bench.states("child") == {"a": "stale", "b": "satisfied"}
    await bench.execute("a")
    assert await bench.queued() == ["child"]


async def test_a_cycle_is_refused_and_named(bench: Jobs) -> None:
    await bench.needs("b", "a")
    await bench.needs("child", "b")
    with pytest.raises(Invalid) as caught:
        await bench.needs("a", "child")
    assert (caught.value.code, caught.value.message) == ("cycle", "a cycle: a → b → child → a")
    with pytest.raises(Invalid):
        await bench.needs("a", "a")


@pytest.mark.requirement(96)
async def test_the_same_need_twice_is_refused(bench: Jobs) -> None:
    await bench.needs("child", "a")
    with pytest.raises(Conflict):
        await bench.needs("child", "a")
    assert await bench.states("child") == {"a": "pending"}
    await bench.execute("a", "failed")
    assert await bench.states("child") == {"a": "failed"}
    await bench.execute("a")
    assert await bench.states("child") == {"a": "satisfied"}


async def test_what_can_not_be_is_refused(bench: Jobs) -> None:
    with pytest.raises(NotFound):
        await bench.needs("child", "nobody")
    with pytest.raises(Invalid):
        await bench.needs("child", "a", timeout="soon")
    with pytest.raises(NotFound):
        await dependencies.remove(bench.database, "child", "a", tenant=TENANT, by="a new user")
    with pytest.raises(Conflict):
        await dependencies.free(bench.database, "a", "why not", freed_as="forced", tenant=TENANT, by="a new user")


@pytest.mark.parametrize("freed_as", ["forced", "skipped"])
async def test_a_person_lets_the_children_go_and_who_and_why_is_kept(bench: Jobs, freed_as: str) -> None:
    await bench.job("told", params={"parents_not_run": Param(default=[])})
    await bench.needs("told", "a")
    with pytest.raises(Invalid):
        await dependencies.free(bench.database, "a", " ", freed_as=freed_as, tenant=TENANT, by="a new user")
    await dependencies.free(bench.database, "a", "by hand", freed_as=freed_as, tenant=TENANT, by="a new user")
    ((name, row),) = await bench.claim()
    assert name == "told"
    assert row["params"] == {"parents_not_run": ["a"] if freed_as == "skipped" else []}
    (need,) = (await dependencies_of(bench.database, "told", tenant=TENANT)).needs
    assert (need.freed_as, need.freed_by, need.reason) == (freed_as, "a new user", "by hand")
    assert await bench.queued() == []


async def test_two_that_look_at_once_execute_it_once(bench: Jobs) -> None:
    await bench.needs("child", "a")
    await bench.execute("a")
    done = await asyncio.gather(*[dependencies.execute_ready(bench.database) for _ in range(6)])
    assert sum(done) == 1
    assert await bench.queued() == ["child"]


async def test_removing_a_need_while_the_job_is_executed_does_not_deadlock(bench: Jobs) -> None:
    await bench.needs("child", "a")
    child = (await job_row(bench.database, "child", tenant=TENANT)).job_id
    async with bench.database.transaction() as executing:
        await overlaps.lock_jobs(executing, job_ids=[child])
        removing = asyncio.create_task(
            dependencies.remove(bench.database, "child", "a", tenant=TENANT, by="a new user")
        )
        blocked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
        pid = executing.get_server_pid()
        async with bench.database.connection() as watching:
            while not await watching.fetchval(blocked, pid):
                assert not removing.done(), "it must wait for the lock of the job"
        await needs.use_up_needs(executing, tenant=TENANT, child=child)
    await removing
    assert (await dependencies_of(bench.database, "child", tenant=TENANT)).needs == []

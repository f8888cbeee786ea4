"""Deleting what others need: refused by name, or they go on without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.domain.errors import Conflict, NotFound
from mainspring.intake import dependencies, jobs, workflows
from mainspring.store import doctor
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import audit as audit_views
from mainspring.views import jobs as job_views
from mainspring.views import refs, why_execution
from mainspring.views.dependencies import dependencies_of
from tests.support.dependent_jobs import MINUTELY, Jobs, Waits
from tests.support.runs import TENANT
from tests.support.scheduling import ledger, scheduler_on, step

pytestmark = pytest.mark.anyio

WHO: dict[str, Any] = {"tenant": TENANT, "by": "a new user"}


async def delete(bench: Jobs, name: str, **more: Any) -> None:
    row = await refs.job_row(bench.database, name, tenant=TENANT)
    await jobs.delete(bench.database, row.job_id, **WHO, **more)


async def state(bench: Jobs, name: str) -> str:
    return (await job_views.get(bench.database, name, tenant=TENANT)).state


@pytest.fixture
async def bench(fresh: Database) -> Jobs:
    made = Jobs(fresh)
    for name in ("a", "b", "child"):
        await made.job(name)
    await made.needs("child", "a")
    return made


async def test_a_job_that_others_need_stays_and_names_them(bench: Jobs) -> None:
    for n in range(6):
        await bench.job(f"more-{n}")
        await bench.needs(f"more-{n}", "a")
    with pytest.raises(Conflict) as caught:
        await delete(bench, "a")
    assert caught.value.code == "needed"
    assert caught.value.message == "a is needed by child, more-0, more-1, more-2, more-3 and 2 more"
    (problem,) = caught.value.problems
    assert problem.pointer == "/cascade" and "--detach" in str(problem.hint)
    assert await state(bench, "a") == "active" and await bench.states("child") == {"a": "pending"}
    assert (await audit_views.list_entries(bench.database, tenant=TENANT, actor="a new user")).items == []


async def test_those_that_need_it_go_on_without_it(bench: Jobs) -> None:
    await bench.needs("child", "b")
    await bench.execute("b")
    assert await bench.queued() == []
    await delete(bench, "a", detach=True, reason="not wanted any more")
    assert await bench.states("child") == {"b": "satisfied"}
    assert await bench.queued() == ["child"], "b was all it still waited for"
    told = (await audit_views.list_entries(bench.database, tenant=TENANT, actor="a new user")).items
    assert [(e.action, e.name, e.reason, e.details) for e in told] == [
        ("job.delete", "a", "not wanted any more", None),
        ("job.unneed", "child", "a was deleted", {"parent": "a"}),
    ]


async def test_a_job_that_needs_others_is_deleted_with_its_needs(bench: Jobs) -> None:
    await bench.job("last")
    await bench.needs("last", "child")
    await delete(bench, "child", detach=True)
    await delete(bench, "a")
    assert (await dependencies_of(bench.database, "last", tenant=TENANT)).order == ["last"]
    async with bench.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM job_needs") == 0


async def test_a_fire_that_waits_for_a_deleted_job_is_let_go(fresh: Database, virtual: VirtualClock) -> None:
    bench = Waits(fresh)
    await bench.job("a")
    await bench.job("child", schedule=MINUTELY)
    await bench.needs("child", "a")
    await bench.open()
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(fresh, "child") == [(60, "waiting", None)]
    await delete(bench, "a", detach=True)
    assert await ledger(fresh, "child") == [(60, "queued", None)]
    await bench.end(await bench.claim())
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(fresh, "child") == [(60, "succeeded", None), (120, "queued", None)], "it waits for nothing"


async def test_a_need_and_a_deletion_at_the_same_time_never_leave_a_dead_need(bench: Jobs) -> None:
    for n in range(10):
        await bench.job(f"p-{n}")
    for n in range(10):
        await asyncio.gather(delete(bench, f"p-{n}"), bench.needs("child", f"p-{n}"), return_exceptions=True)
    async with bench.database.connection() as connection:
        dead = "SELECT count(*) FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id WHERE p.deleted_at IS NOT NULL"
        assert await connection.fetchval(dead) == 0
    with pytest.raises(NotFound):
        await bench.needs("child", "gone")


async def test_a_workflow_that_is_a_step_or_is_needed_stays(bench: Jobs) -> None:
    await bench.apply("inner", {"x": {}})
    await bench.apply("outer", {"in": {"workflow": "inner"}})
    with pytest.raises(Conflict, match="inner is a step of outer"):
        await workflows.delete(bench.database, "inner", **WHO)
    await bench.apply("outer", {"x": {}})
    await bench.needs("b", "inner")
    with pytest.raises(Conflict, match="inner is needed by b"):
        await workflows.delete(bench.database, "inner", **WHO)
    await workflows.delete(bench.database, "inner", detach=True, **WHO)
    assert await bench.states("b") == {}
    told = (await audit_views.list_entries(bench.database, tenant=TENANT, actor="a new user")).items
    assert [e.action for e in told] == ["workflow.delete", "job.unneed"]


async def test_a_step_whose_workflow_was_deleted_all_the_same_fails_and_says_so(bench: Jobs) -> None:
    await bench.apply("inner", {"x": {}})
    await bench.apply("outer", {"in": {"workflow": "inner"}})
    await workflows.delete(bench.database, "inner", detach=True, **WHO)
    run = await bench.get(await bench.start("outer"))
    assert (run.state, run.steps[0].reason) == ("failed", "there is no workflow 'inner'")


async def gone_before(bench: Jobs, name: str) -> None:
    """Deleted by a program that did not look who needs it."""
    async with bench.database.connection() as connection:
        await connection.execute("UPDATE jobs SET deleted_at = db_now() WHERE name = $1", name)


async def test_who_still_needs_a_deleted_job_is_told_and_let_go(bench: Jobs) -> None:
    await bench.needs("child", "b")
    await bench.execute("b")
    assert (await why_execution.job(bench.database, "child", tenant=TENANT)).reasons[0].message == (
        "it is executed when these have succeeded: a (pending)"
    )
    await gone_before(bench, "a")
    (reason,) = (await why_execution.job(bench.database, "child", tenant=TENANT)).reasons
    assert reason.code == "needs" and "a (deleted: remove it with mainspring jobs needs remove)" in reason.message
    (need,) = (n for n in (await dependencies_of(bench.database, "child", tenant=TENANT)).needs if n.job == "a")
    assert need.deleted_at is not None
    async with bench.database.connection() as connection:
        found = (await doctor.examine(connection)).findings
    assert [(f.offender, f.what) for f in found if f.check == "no job depends on a deleted job"] == [
        ("child", "needs a, which was deleted: mainspring jobs needs remove child a")
    ]
    with pytest.raises(NotFound):
        await dependencies.remove(bench.database, "b", "a", **WHO)
    await dependencies.remove(bench.database, "child", "a", **WHO)
    assert await bench.queued() == ["child"], "b was all it still waited for"
    async with bench.database.connection() as connection:
        assert (await doctor.examine(connection)).checks["no job depends on a deleted job"] == "ok"


async def test_of_two_of_a_name_the_one_that_is_there_is_meant(bench: Jobs) -> None:
    old = await refs.job_row(bench.database, "a", tenant=TENANT)
    await gone_before(bench, "a")
    await bench.job("a")
    await bench.needs("child", "a")
    await dependencies.remove(bench.database, "child", "a", **WHO)
    (left,) = (await dependencies_of(bench.database, "child", tenant=TENANT)).needs
    assert left.job_id == old.job_id
    await dependencies.remove(bench.database, "child", str(old.job_id), **WHO)
    assert (await dependencies_of(bench.database, "child", tenant=TENANT)).needs == []

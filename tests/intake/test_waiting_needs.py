"""Fires that wait until other jobs have succeeded, let go by whoever settles the last of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.domain.job import Misfire
from mainspring.domain.params import Param
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.deadlines import skip_overdue
from mainspring.intake import blackouts, dependencies, executions, jobs
from mainspring.intake import runs as run_actions
from mainspring.scheduler.blackout_gate import decide_waiting_fires
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import refs, why_execution
from tests.support.dependent_jobs import MINUTELY, Jobs, Waits
from tests.support.runs import TENANT
from tests.support.scheduling import ledger, scheduler_on, step

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(fresh: Database, virtual: VirtualClock) -> Waits:
    made = Waits(fresh)
    for name in ("a", "b"):
        await made.job(name)
    return made


async def child(bench: Waits, *parents: str, needs: dict[str, Any] | None = None, **more: Any) -> Scheduler:
    await bench.job("child", **{"schedule": MINUTELY, **more})
    for parent in parents:
        await bench.needs("child", parent, **(needs or {}))
    await bench.open()
    return await scheduler_on(bench.database)


async def test_a_fire_waits_until_all_have_succeeded_since_the_one_before(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", "b")
    await virtual.advance(seconds=30)
    await bench.execute("a")
    await virtual.advance(seconds=30)
    await step(scheduler)
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    (entry,) = (await execution_views.list_executions(bench.database, tenant=TENANT, job="child")).items
    assert entry.due_at == entry.fire_at
    assert await bench.now_queued() == []
    await virtual.advance(seconds=10)
    await bench.execute("b")
    await virtual.advance(seconds=10)
    rows = await bench.claim()
    assert [name for name, _ in rows] == ["child"], "the transaction that settled b has let it go"
    await bench.end(rows)
    await virtual.advance(seconds=40)
    await step(scheduler)
    assert await ledger(bench.database, "child") == [(60, "succeeded", None), (120, "waiting", None)]
    await bench.execute("b")
    assert await bench.now_queued() == [], "the success of a was used up"
    await virtual.advance(seconds=1)
    await bench.execute("a")
    assert await bench.now_queued() == ["child"]


async def test_a_fire_whose_needs_are_met_is_queued_at_once(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", "b")
    await virtual.advance(seconds=30)
    await bench.execute("a")
    await bench.execute("b")
    await virtual.advance(seconds=30)
    await step(scheduler)
    assert await ledger(bench.database, "child") == [(60, "queued", None)]


async def test_a_success_too_long_ago_does_not_let_it_go(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", "b", needs={"timeout": "20s"})
    await virtual.advance(seconds=30)
    await bench.execute("a")
    await virtual.advance(seconds=30)
    await bench.execute("b")
    await step(scheduler)
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    found = await why_execution.job(bench.database, "child", tenant=TENANT)
    assert [(r.code, r.message) for r in found.reasons] == [
        ("needs", "it waits until these have succeeded: a (too long ago)")
    ]
    await virtual.advance(seconds=5)
    await bench.execute("a")
    assert await bench.now_queued() == ["child"]


async def test_a_failure_does_not_let_it_go(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    await bench.execute("a", "failed")
    assert await bench.now_queued() == []
    found = await why_execution.job(bench.database, "child", tenant=TENANT)
    assert found.reasons[0].message == "it waits until these have succeeded: a (failed)"


async def test_the_wait_has_an_end_and_says_for_what(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", "b", needs={"wait": "40s"})
    await virtual.advance(seconds=50)
    await bench.execute("b")
    await virtual.advance(seconds=10)
    await step(scheduler)
    await virtual.advance(seconds=39)
    assert await skip_overdue(bench.database) == 0
    await virtual.advance(seconds=1)
    assert await skip_overdue(bench.database) == 1
    (entry,) = (await execution_views.list_executions(bench.database, tenant=TENANT, job="child")).items
    assert (entry.state, entry.reason, entry.error) == ("skipped", "needs", "not succeeded in time: a")
    await virtual.advance(seconds=20)
    await step(scheduler)
    await bench.execute("a")
    assert await bench.now_queued() == [], "the success of b was before the fire that gave up"
    await bench.execute("b")
    assert await bench.now_queued() == ["child"]


async def test_the_start_deadline_holds_while_it_waits(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", start_by="30s")
    await virtual.advance(seconds=60)
    await step(scheduler)
    await virtual.advance(seconds=30)
    assert await skip_overdue(bench.database) == 1
    assert await ledger(bench.database, "child") == [(60, "skipped", "start_by")]


# What two fires become whose needs are not met until 130: the first still waits when the second is due.
OVERLAPS: dict[str, list[tuple[float, str, str | None]]] = {
    "skip": [(60, "queued", None), (120, "skipped", "overlap")],
    "queue_one": [(60, "queued", None), (120, "skipped", "overlap")],
    "queue_all": [(60, "queued", None), (120, "blocked", None)],
    "cancel_running": [(60, "cancelled", "overlap"), (120, "queued", None)],
    "allow": [(60, "queued", None), (120, "waiting", None)],
}


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_with_each_overlap_policy(bench: Waits, virtual: VirtualClock, overlap: Any) -> None:
    scheduler = await child(bench, "a", overlap=overlap)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    await virtual.advance(seconds=10)
    await bench.execute("a")
    assert await ledger(bench.database, "child") == OVERLAPS[overlap]


async def test_one_that_was_blocked_waits_for_its_needs_after_it(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", overlap="queue_all")
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    await bench.execute("a")
    await virtual.advance(seconds=1)
    await bench.end(await bench.claim())
    assert await ledger(bench.database, "child") == [(60, "succeeded", None), (120, "waiting", None)]
    await bench.execute("a")
    assert await ledger(bench.database, "child") == [(60, "succeeded", None), (120, "queued", None)]


@pytest.mark.parametrize("overlap", ["skip", "queue_all", "allow"])
@pytest.mark.parametrize("paused", [False, True])
async def test_missed_fires_wait_too(bench: Waits, virtual: VirtualClock, overlap: Any, paused: bool) -> None:
    await bench.job("child", schedule=MINUTELY, overlap=overlap, misfire=Misfire(policy="latest"))
    await bench.needs("child", "a")
    await bench.open()
    row = await refs.job_row(bench.database, "child", tenant=TENANT)
    if paused:
        await jobs.pause(bench.database, row.job_id, tenant=TENANT, reason="test")
    await virtual.advance(seconds=200)
    scheduler = await scheduler_on(bench.database)
    if paused:
        await jobs.resume(bench.database, row.job_id, tenant=TENANT, caught_up=True)
        await step(scheduler)
    assert await ledger(bench.database, "child") == [
        (60, "skipped", "misfire"),
        (120, "skipped", "misfire"),
        (180, "waiting", None),
    ]
    await bench.execute("a")
    assert await bench.now_queued() == ["child"]


async def test_a_blackout_has_the_last_word(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    window = wire.NewBlackout(start_at=START, end_at=START.replace(minute=5), reason="test")
    await blackouts.create(bench.database, window, tenant=TENANT, by="test")
    await bench.execute("a")
    await decide_waiting_fires(bench.database, shards=range(64))
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    await virtual.set(START.replace(minute=5))
    await decide_waiting_fires(bench.database, shards=range(64))
    await bench.promote()
    assert (await ledger(bench.database, "child"))[0] == (60, "queued", None)


async def test_a_pause_neither_loses_nor_frees_what_waits(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    row = await refs.job_row(bench.database, "child", tenant=TENANT)
    await jobs.pause(bench.database, row.job_id, tenant=TENANT, reason="test")
    await virtual.advance(seconds=1)
    await jobs.resume(bench.database, row.job_id, tenant=TENANT)
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    await bench.execute("a")
    assert await bench.now_queued() == ["child"]


async def test_the_last_need_that_is_removed_lets_it_go(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    await dependencies.remove(bench.database, "child", "a", tenant=TENANT, by="a new user")
    assert await ledger(bench.database, "child") == [(60, "queued", None)]
    await bench.now_queued()
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert (await ledger(bench.database, "child"))[1][1:] == ("skipped", "overlap"), "and it fires as any other job"


async def test_a_person_lets_it_go_and_it_is_told_what_was_not_run(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a", params={"parents_not_run": Param(default=[])})
    await virtual.advance(seconds=60)
    await step(scheduler)
    await virtual.advance(seconds=1)
    await dependencies.free(bench.database, "a", "by hand", freed_as="skipped", tenant=TENANT, by="a new user")
    ((name, row),) = await bench.claim()
    assert (name, row["params"]) == ("child", {"parents_not_run": ["a"]})


async def test_a_person_can_cancel_what_waits(bench: Waits, virtual: VirtualClock) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    (entry,) = (await execution_views.list_executions(bench.database, tenant=TENANT, job="child")).items
    await executions.cancel(bench.database, entry.execution_id, tenant=TENANT, by="test", reason="")
    await bench.execute("a")
    assert await bench.now_queued() == []
    assert await ledger(bench.database, "child") == [(60, "cancelled", "cancelled by test")]


async def test_the_net_finds_what_a_program_that_knows_no_needs_has_settled(
    bench: Waits, virtual: VirtualClock
) -> None:
    scheduler = await child(bench, "a")
    await virtual.advance(seconds=60)
    await step(scheduler)
    old = Jobs(bench.database)
    await old.execute("a")
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    await bench.timers.run_due()
    assert await ledger(bench.database, "child") == [(60, "queued", None)]


async def test_the_end_of_a_run_lets_it_go(bench: Waits, virtual: VirtualClock) -> None:
    await bench.apply("flow", {"one": {}, "sign": {"approval": {"self_approval": True}, "needs": ["one"]}})
    scheduler = await child(bench, "flow")
    await virtual.advance(seconds=60)
    await step(scheduler)
    run = await bench.start("flow")
    await bench.end(await bench.claim())
    assert await ledger(bench.database, "child") == [(60, "waiting", None)]
    await run_actions.decide(
        bench.runs, run.run_id, "sign", wire.Decision(), tenant=TENANT, by="test", scopes=["write"], approved=True
    )
    assert await ledger(bench.database, "child") == [(60, "queued", None)]


async def test_a_job_that_gets_a_schedule_keeps_its_needs(bench: Waits, virtual: VirtualClock) -> None:
    await bench.job("child")
    await bench.needs("child", "a")
    async with bench.database.connection() as connection:
        await connection.execute("UPDATE jobs SET needs = false")  # as a program that knows no such column leaves it
    row = await refs.job_row(bench.database, "child", tenant=TENANT)
    change = {"schedule": {"every": 60, "aligned": True}}
    await jobs.patch(bench.database, row.job_id, change, tenant=TENANT, by="test")
    await bench.open()
    scheduler = await scheduler_on(bench.database)
    await virtual.advance(seconds=1)
    await bench.execute("a")
    assert await bench.queued() == [], "it is executed at its fires from now on"
    await virtual.advance(seconds=59)
    await step(scheduler)
    await bench.end(await bench.claim())
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(bench.database, "child") == [(60, "succeeded", None), (120, "waiting", None)]


async def test_a_job_that_is_due_once_is_refused(bench: Waits, virtual: VirtualClock) -> None:
    await bench.job("once", schedule=ScheduleSpec(at="2026-11-17T12:00:00Z"))
    with pytest.raises(Invalid):
        await bench.needs("once", "a")
    await child(bench, "a")
    row = await refs.job_row(bench.database, "child", tenant=TENANT)
    at = {"schedule": {"at": "2026-11-17T12:00:00Z"}}
    with pytest.raises(Invalid):
        await jobs.patch(bench.database, row.job_id, at, tenant=TENANT, by="test")
    with pytest.raises(Invalid):
        await bench.needs("b", "a", wait="1h")


@pytest.mark.parametrize("overlap", ["skip", "cancel_running"])
async def test_a_fire_and_the_ends_of_all_it_needs_at_once(fresh: Database, overlap: Any) -> None:
    """Real transactions at the same moment, many times: no fire is left waiting though all is met."""
    bench = Waits(fresh)
    clock = VirtualClock(fresh)
    await clock.install()
    parents = [f"p{n}" for n in range(4)]
    for name in parents:
        await bench.job(name)
    scheduler = await child(bench, *parents, overlap=overlap)
    for _ in range(15):
        await clock.advance(seconds=30)
        for name in parents:
            row = await refs.job_row(fresh, name, tenant=TENANT)
            await executions.Submitter(fresh).submit(executions.Submission(TENANT, "test", row.job_id))
        rows = await bench.claim()
        await clock.advance(seconds=30)
        await scheduler.lease()
        await asyncio.gather(scheduler.decide(), *[bench.end([row]) for row in rows])
        newest = (await ledger(fresh, "child"))[-1]
        assert newest[1] == "queued", newest
        await bench.end(await bench.claim())
    assert {state for _, state, _ in await ledger(fresh, "child")} == {"succeeded"}

"""Blackouts through real firing: every instant is recorded once, and nothing starts inside."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from mainspring import wire
from mainspring.clock import millis
from mainspring.domain.job import Misfire
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import blackouts, jobs
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import blackouts as blackout_views
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.policies import MISFIRES, OVERLAPS, LedgerLine, skipped
from tests.support.scheduling import TENANT, add, finish_all, ledger, scheduler_on, step

pytestmark = pytest.mark.anyio


async def black_out(database: Database, start_s: float, end_s: float, **more: Any) -> str:
    new = wire.NewBlackout(start_at=START + timedelta(seconds=start_s), end_at=START + timedelta(seconds=end_s), **more)
    return str((await blackouts.create(database, new, tenant=TENANT, by="test")).blackout_id)


async def forward(virtual: VirtualClock, scheduler: Scheduler, to_s: float, by_s: float = 30) -> None:
    while virtual.now < START + timedelta(seconds=to_s):
        await virtual.advance(seconds=by_s)
        await step(scheduler)


# A blackout from 50 to 200: the fires at 60, 120 and 180 are inside. What stands at 199, when nothing may have started.
INSIDE: dict[tuple[str, str], list[LedgerLine]] = {
    **{("skip", overlap): skipped(60, 120, 180, why="blackout") for overlap in OVERLAPS},
    **{("latest", overlap): [*skipped(60, 120, why="blackout"), (180, "waiting", None)] for overlap in OVERLAPS},
    ("all", "skip"): [(60, "waiting", None), *skipped(120, 180, why="overlap")],
    ("all", "queue_one"): [(60, "waiting", None), *skipped(120, 180, why="overlap")],
    ("all", "queue_all"): [(60, "waiting", None), (120, "blocked", None), (180, "blocked", None)],
    ("all", "cancel_running"): [(60, "cancelled", "overlap"), (120, "cancelled", "overlap"), (180, "waiting", None)],
    ("all", "allow"): [(60, "waiting", None), (120, "waiting", None), (180, "waiting", None)],
}


@pytest.mark.parametrize(("misfire", "overlap"), list(product(MISFIRES, OVERLAPS)))
async def test_the_grid_inside_and_at_the_end(
    fresh: Database, virtual: VirtualClock, misfire: Any, overlap: Any
) -> None:
    await add(fresh, "job", misfire=Misfire(policy=misfire), overlap=overlap)
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 50, 200)
    await forward(virtual, scheduler, 180)
    await virtual.advance(seconds=19)
    await step(scheduler)
    inside = INSIDE[misfire, overlap]
    assert await ledger(fresh, "job") == inside
    await virtual.advance(seconds=1)
    await step(scheduler)
    assert await ledger(fresh, "job") == [
        (at, "queued" if state == "waiting" else state, why) for at, state, why in inside
    ], "at the end, what waited for it is queued"
    for _ in range(3):
        await finish_all(fresh)
    await virtual.advance(seconds=40)
    await step(scheduler)
    assert (await ledger(fresh, "job"))[-1][:2] == (
        240,
        "blocked" if (misfire, overlap) == ("all", "queue_all") else "queued",
    )


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        (Misfire(policy="all", max=2), [120, 180]),
        (Misfire(policy="all", window="100s"), [120, 180]),
        (Misfire(policy="latest", window="10s"), []),
    ],
)
async def test_number_and_window_are_measured_at_the_end(
    fresh: Database, virtual: VirtualClock, misfire: Misfire, expected: list[int]
) -> None:
    await add(fresh, "job", misfire=misfire, overlap="allow")
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 50, 200)
    await forward(virtual, scheduler, 210)
    entries = await ledger(fresh, "job")
    assert [at for at, state, _ in entries if state == "queued"] == expected
    assert [at for at, _, why in entries if why == "blackout"] == [at for at in (60, 120, 180) if at not in expected]


async def test_the_last_fire_before_the_end_of_the_job_is_the_latest(fresh: Database, virtual: VirtualClock) -> None:
    end_at = (START + timedelta(seconds=150)).isoformat()
    await add(fresh, "ends", schedule=ScheduleSpec(every=60, aligned=True, end_at=end_at))
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 50, 200)
    await forward(virtual, scheduler, 210)
    assert await ledger(fresh, "ends") == [(60, "skipped", "blackout"), (120, "queued", None)]


async def test_queues_and_jobs_have_their_own(fresh: Database, virtual: VirtualClock) -> None:
    for name, queue in (("short", "short"), ("long", "long"), ("both", "long"), ("named", "short")):
        await add(fresh, name, queue=queue, overlap="allow", misfire=Misfire(policy="all"))
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 50, 100, queue="long")
    await black_out(fresh, 100, 150, job="both")
    await black_out(fresh, 110, 130, job="named")
    await virtual.advance(seconds=60)
    await step(scheduler)
    async with fresh.connection() as connection:
        rows = await connection.fetch("SELECT j.name, e.due_at FROM executions e JOIN jobs j USING (job_id)")
    due = {r["name"]: (r["due_at"] - START).total_seconds() for r in rows}
    assert due == {"short": 60, "long": 100, "both": 150, "named": 60}, "the windows of queue and job join"
    await forward(virtual, scheduler, 120, by_s=20)
    states = {name: [state for _, state, _ in await ledger(fresh, name)] for name in due}
    assert states == {
        "short": ["queued", "queued"],
        "long": ["queued", "queued"],
        "both": ["waiting", "waiting"],
        "named": ["queued", "waiting"],
    }


async def test_another_tenant_fires_on(fresh: Database, virtual: VirtualClock) -> None:
    async with fresh.connection() as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'neighbour')")
    await add(fresh, "job", misfire=Misfire(policy="skip"))
    scheduler = await scheduler_on(fresh)
    new = wire.NewBlackout(start_at=START, end_at=START + timedelta(hours=1))
    theirs = await blackouts.create(fresh, new, tenant=2, by="test")
    await forward(virtual, scheduler, 60)
    assert await ledger(fresh, "job") == [(60, "queued", None)]
    with pytest.raises(Exception, match="there is no blackout"):
        await blackouts.delete(fresh, str(theirs.blackout_id), tenant=TENANT, by="test")
    assert (await blackout_views.list_blackouts(fresh, tenant=TENANT)).items == []


async def test_one_that_recurs(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", misfire=Misfire(policy="latest"), overlap="allow")
    scheduler = await scheduler_on(fresh)
    new = wire.NewBlackout(schedule=ScheduleSpec(cron="2/5 * * * *"), lasts="90s", reason="backup")
    shown = await blackouts.create(fresh, new, tenant=TENANT, by="test")
    assert (shown.next_at, shown.holds_until) == (START + timedelta(seconds=120), None)
    await forward(virtual, scheduler, 600)
    # Windows at 120-210 and 420-510: two fires in each.
    assert await ledger(fresh, "job") == [
        (at, "skipped", "blackout") if at in (120, 420) else (at, "queued", None) for at in range(60, 660, 60)
    ]
    (shown,) = (await blackout_views.list_blackouts(fresh, tenant=TENANT)).items
    assert shown.description == "at minutes 2 to 57 in steps of 5 of every hour, for 1 minute 30 seconds"


async def test_one_time_jobs_wait_at_the_gate(fresh: Database, virtual: VirtualClock) -> None:
    at = (START + timedelta(seconds=90)).isoformat()
    for policy in ("latest", "skip"):
        await add(fresh, f"once-{policy}", schedule=ScheduleSpec(at=at), misfire=Misfire(policy=policy))
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 60, 120)
    await forward(virtual, scheduler, 90)
    assert await ledger(fresh, "once-latest") == [(90, "waiting", None)]
    assert await ledger(fresh, "once-skip") == [(90, "skipped", "blackout")]
    await black_out(fresh, 115, 150)
    await forward(virtual, scheduler, 120)
    assert await ledger(fresh, "once-latest") == [(90, "waiting", None)], "the next one joined"
    await forward(virtual, scheduler, 150)
    assert await ledger(fresh, "once-latest") == [(90, "queued", None)]
    assert (await job_views.get(fresh, "once-skip", tenant=TENANT)).state == "finished"


async def test_ending_it_early_lets_go_what_waits(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", misfire=Misfire(policy="all"), overlap="allow")
    scheduler = await scheduler_on(fresh)
    blackout = await black_out(fresh, 50, 3600)
    await forward(virtual, scheduler, 120)
    assert [state for _, state, _ in await ledger(fresh, "job")] == ["waiting", "waiting"]
    await blackouts.delete(fresh, blackout, tenant=TENANT, by="test")
    scheduler._on_gap()  # its NOTIFY, which this scheduler does not hear
    await step(scheduler)
    assert [state for _, state, _ in await ledger(fresh, "job")] == ["queued", "queued"]
    await forward(virtual, scheduler, 180)
    assert (await ledger(fresh, "job"))[-1] == (180, "queued", None)


async def test_one_of_two_that_ends_early_lets_nothing_go(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", misfire=Misfire(policy="all"), overlap="allow")
    scheduler = await scheduler_on(fresh)
    longer, _ = await black_out(fresh, 50, 3600), await black_out(fresh, 40, 200)
    await forward(virtual, scheduler, 90)
    await blackouts.delete(fresh, longer, tenant=TENANT, by="test")
    scheduler._on_gap()
    await step(scheduler)
    (waiting,) = (await execution_views.list_executions(fresh, tenant=TENANT, job="job")).items
    assert (waiting.state, waiting.due_at) == ("waiting", START + timedelta(seconds=200))


async def test_missed_while_down_in_a_blackout_that_is_over(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", misfire=Misfire(policy="latest"))
    await black_out(fresh, 50, 130)
    await virtual.advance(seconds=140)
    await scheduler_on(fresh)
    assert await ledger(fresh, "job") == [(60, "skipped", "blackout"), (120, "queued", None)]


async def test_blackouts_while_ticks_run(fresh: Database, virtual: VirtualClock) -> None:
    """Whoever is first: each instant has one entry, and what was fired before the blackout is not taken back."""
    for n in range(8):
        await add(fresh, f"job-{n}", misfire=Misfire(policy="skip"), overlap="allow")
    scheduler = await scheduler_on(fresh)
    for turn in range(1, 9):
        await virtual.advance(seconds=60)
        made = await asyncio.gather(
            step(scheduler), black_out(fresh, 60 * turn - 5, 60 * turn + 5), scheduler.decide(), return_exceptions=False
        )
        await blackouts.delete(fresh, made[1], tenant=TENANT, by="test")
        await step(scheduler)
    for n in range(8):
        entries = await ledger(fresh, f"job-{n}")
        assert [at for at, _, _ in entries] == [60 * turn for turn in range(1, 9)]
        assert {(state, why) for _, state, why in entries} <= {("queued", None), ("skipped", "blackout")}


async def test_a_rescheduled_or_deleted_job_takes_its_waiting_fires_along(
    fresh: Database, virtual: VirtualClock
) -> None:
    for name in ("edited", "deleted", "paused"):
        await add(fresh, name)
    scheduler = await scheduler_on(fresh)
    await black_out(fresh, 50, 100)
    await forward(virtual, scheduler, 60)
    rows = {name: await refs.job_row(fresh, name, tenant=TENANT) for name in ("edited", "deleted", "paused")}
    await jobs.patch(fresh, rows["edited"].job_id, {"schedule": {"every": 3600}}, tenant=TENANT, by="test")
    await jobs.delete(fresh, rows["deleted"].job_id, tenant=TENANT, by="test")
    await jobs.pause(fresh, rows["paused"].job_id, tenant=TENANT, reason="")
    await forward(virtual, scheduler, 120)
    await jobs.resume(fresh, rows["paused"].job_id, tenant=TENANT)
    found = {name: await ledger(fresh, str(row.job_id)) for name, row in rows.items()}
    assert found == {
        "edited": [(60, "cancelled", "rescheduled")],
        "deleted": [(60, "cancelled", "job deleted by test")],
        "paused": [(60, "skipped", "paused"), (120, "skipped", "paused")],
    }


async def test_without_a_blackout_nothing_is_asked_about_them(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job")
    scheduler = await scheduler_on(fresh)
    async with fresh.connection() as connection:
        await connection.execute("ALTER TABLE blackouts RENAME TO away")
    await virtual.advance(seconds=60)
    await scheduler.lease()
    scheduler._promotion.pending = False
    await scheduler.decide()
    assert await ledger(fresh, "job") == [(60, "queued", None)]
    assert millis(virtual.now) == millis(START) + 60_000


async def test_a_window_between_milliseconds_covers_all_of_them(fresh: Database, virtual: VirtualClock) -> None:
    start, end = START + timedelta(microseconds=1_999_700), START + timedelta(microseconds=9_000_100)
    new = wire.NewBlackout(start_at=start, end_at=end)
    shown = await blackouts.create(fresh, new, tenant=TENANT, by="test")
    assert shown.start_at == START + timedelta(milliseconds=1999)
    assert shown.end_at == START + timedelta(milliseconds=9001)

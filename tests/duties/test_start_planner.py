"""Deadline-flexible jobs: planned ahead by the leader, decided once when they fire, started in time."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.costs import read_price_windows
from mainspring.domain.flexible import BUNDLES, Flexible, read_window
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.start_planner import EVERY_MS, StartPlanner
from mainspring.intake import blackouts, jobs
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import refs, why_execution
from tests.support.scheduling import TENANT, add, copies, scheduler_on
from tests.support.scheduling import step as one_step

pytestmark = pytest.mark.anyio
NIGHTLY = ScheduleSpec(cron="0 0 * * *")
IN_THE_NIGHT = Flexible(before="06:00", takes="20m")
MIDNIGHT = datetime.fromisoformat("2026-12-02T00:00Z")


async def step(scheduler: Scheduler) -> None:
    """Twice: the lease may have ended while the clock was moved."""
    await one_step(scheduler)
    await one_step(scheduler)


async def at_evening(virtual: VirtualClock) -> None:
    await virtual.set(MIDNIGHT - timedelta(hours=2))


async def busy_hours(database: Database, name: str, cron: str, *, minutes: float, jobs_: int = 20) -> None:
    """A fixed load: jobs on a schedule, and how long they took in the last days."""
    await add(database, name, schedule=ScheduleSpec(cron=cron))
    row = await refs.job_row(database, name, tenant=TENANT)
    for _ in range(jobs_ - 1):
        await add(database, f"{name}-{uuid4().hex[:8]}", schedule=ScheduleSpec(cron=cron))
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO job_rollups (job_id, at, queue, tenant_id, succeeded, failed, cancelled, skipped, duration_ms,"
            " wait_ms, buckets, counts)"
            " VALUES ($1, db_now() - interval '1 day', 'short', 1, 10, 0, 0, 0, $2, 0, $3, '{10}')",
            row.job_id,
            round(10 * minutes * 60_000),
            [160],
        )


async def executions_of(database: Database, job: str) -> list[Any]:
    page = await execution_views.list_executions(database, tenant=TENANT, job=job, limit=500)
    return list(page.items)


async def planned(database: Database, job: str) -> datetime | None:
    found = await fire_views.of_job(database, job, tenant=TENANT, count=1)
    return found.starts[0].start_at


async def test_it_starts_in_the_quiet_part_of_its_window_and_says_so(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await busy_hours(fresh, "etl", "0 0,1,2 * * *", minutes=59)
    await busy_hours(fresh, "mail", "30 4 * * *", minutes=80)
    await add(fresh, "report", schedule=NIGHTLY, flexible=IN_THE_NIGHT)
    scheduler = await scheduler_on(fresh)
    await StartPlanner(fresh).run_due()
    at = await planned(fresh, "report")
    assert at is not None and MIDNIGHT + timedelta(hours=2, minutes=58) <= at <= MIDNIGHT + timedelta(
        hours=4, minutes=10
    )

    await virtual.set(MIDNIGHT)
    await step(scheduler)
    (found,) = await executions_of(fresh, "report")
    assert (found.state, found.fire_at, found.due_at) == ("waiting", MIDNIGHT, at)
    (line,) = (await fire_views.ledger(fresh, "report", tenant=TENANT)).items
    assert (line.fire_at, line.due_at) == (MIDNIGHT, at), "the ledger shows both"
    (reason,) = (await why_execution.execution(fresh, found.execution_id, tenant=TENANT)).reasons
    assert (reason.code, reason.until) == ("placed", at) and "06:00" in reason.message

    await virtual.set(at - timedelta(seconds=1))
    await step(scheduler)
    assert [e.state for e in await executions_of(fresh, "report")] == ["waiting"], "early"
    await virtual.set(at)
    await step(scheduler)
    assert [e.state for e in await executions_of(fresh, "report")] == ["queued"]


async def test_a_new_plan_and_a_takeover_do_not_move_what_has_fired(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await busy_hours(fresh, "etl", "0 0 * * *", minutes=90)
    await add(fresh, "report", schedule=NIGHTLY, flexible=IN_THE_NIGHT)
    scheduler, planner = await scheduler_on(fresh), StartPlanner(fresh)
    await planner.run_due()
    at = await planned(fresh, "report")
    assert at is not None and at > MIDNIGHT
    await virtual.set(MIDNIGHT + timedelta(seconds=1))
    await step(scheduler)

    await busy_hours(fresh, "new", at.strftime("%M %H * * *"), minutes=60)  # now that minute is the worst one
    await virtual.advance(seconds=EVERY_MS / 1000)
    await planner.run_due()
    other = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(other)
    await step(scheduler)
    assert [(e.state, e.due_at) for e in await executions_of(fresh, "report")] == [("waiting", at)]
    tomorrow = await planned(fresh, "report")
    assert tomorrow is not None and tomorrow - timedelta(days=1) != at, "the next fire is planned anew"


@pytest.mark.requirement(82)
async def test_the_cheapest_window_first(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await add(fresh, "report", schedule=NIGHTLY, flexible=Flexible(within="20h", takes="1h"))
    await StartPlanner(fresh, prices=read_price_windows("timezone=Europe/Berlin; 13:00-15:00=0.3")).run_due()
    at = await planned(fresh, "report")
    assert at == MIDNIGHT + timedelta(hours=12), "13:00 in Berlin"


async def test_a_thousand_executions_spread_over_the_window(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await add(fresh, "report", schedule=NIGHTLY, flexible=Flexible(within="6h", takes="1m"))
    await copies(fresh, 999)
    scheduler = await scheduler_on(fresh)
    await StartPlanner(fresh).run_due()
    await virtual.set(MIDNIGHT)
    await step(scheduler)
    async with fresh.connection() as connection:
        rows = await connection.fetch(
            "SELECT due_at, count(*) AS n, max(state) AS state FROM executions WHERE trigger = 'fire' GROUP BY 1"
        )
    assert sum(row["n"] for row in rows) == 1000
    assert len(rows) > BUNDLES * 0.9 and max(row["n"] for row in rows) < 20
    assert all(MIDNIGHT <= row["due_at"] <= MIDNIGHT + timedelta(hours=6) for row in rows)


async def test_without_a_known_duration_it_starts_at_its_fire(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await busy_hours(fresh, "etl", "0 0 * * *", minutes=90)
    await add(fresh, "report", schedule=NIGHTLY, flexible=Flexible(within="6h"))
    scheduler = await scheduler_on(fresh)
    await StartPlanner(fresh).run_due()
    assert await planned(fresh, "report") is None
    await virtual.set(MIDNIGHT)
    await step(scheduler)
    assert [e.state for e in await executions_of(fresh, "report")] == ["queued"]


async def test_measured_durations_count_if_none_is_stated(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await busy_hours(fresh, "etl", "0 0,1,2,3 * * *", minutes=60)
    await add(fresh, "report", schedule=NIGHTLY, flexible=Flexible(within="5h30m"))
    row = await refs.job_row(fresh, "report", tenant=TENANT)
    async with fresh.connection() as connection:
        await connection.execute(
            "INSERT INTO job_rollups (job_id, at, queue, tenant_id, succeeded, failed, cancelled, skipped, duration_ms,"
            " wait_ms, buckets, counts)"
            " SELECT $1, db_now() - interval '1 day', 'short', 1, 5, 0, 0, 0, 9000000, 0,"
            " ARRAY[duration_bucket(1800000)], '{5}'",
            row.job_id,
        )
    await StartPlanner(fresh).run_due()
    at = await planned(fresh, "report")
    assert at is not None and MIDNIGHT + timedelta(hours=4) <= at <= MIDNIGHT + timedelta(hours=4, minutes=57)


async def test_a_blackout_in_the_window_is_avoided(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    await busy_hours(fresh, "etl", "0 0 * * *", minutes=60)
    await add(fresh, "report", schedule=NIGHTLY, flexible=Flexible(within="6h", takes="20m"))
    await blackouts.create(
        fresh,
        wire.NewBlackout(
            start_at=MIDNIGHT + timedelta(hours=1), end_at=MIDNIGHT + timedelta(hours=5), reason="upgrade"
        ),
        tenant=TENANT,
        by="test",
    )
    await StartPlanner(fresh).run_due()
    at = await planned(fresh, "report")
    assert at is not None and at >= MIDNIGHT + timedelta(hours=5)


async def test_a_deadline_is_the_end_of_the_window(fresh: Database, virtual: VirtualClock) -> None:
    await at_evening(virtual)
    berlin = ScheduleSpec(cron="0 22 * * *", timezone="Europe/Berlin")
    await add(fresh, "report", schedule=berlin, flexible=IN_THE_NIGHT)
    await add(fresh, "own", schedule=NIGHTLY, flexible=IN_THE_NIGHT, finish_by="1h")
    async with fresh.connection() as connection:
        rows = await connection.fetch("SELECT name, finish_by_s FROM jobs ORDER BY name")
    assert [tuple(row) for row in rows] == [("own", 3600), ("report", 8 * 3600)]
    row = await refs.job_row(fresh, "report", tenant=TENANT)
    edited = JobSpec(name="report", task=NoopTask(), schedule=berlin, flexible=IN_THE_NIGHT, priority=7)
    await jobs.replace_spec(fresh, row.job_id, edited, tenant=TENANT, by="test")
    async with fresh.connection() as connection:
        kept = await connection.fetchval("SELECT finish_by_s FROM jobs WHERE name = 'report'")
    assert kept == 8 * 3600


@pytest.mark.parametrize("seed", range(4))
async def test_random_windows_takeovers_and_gaps(fresh: Database, virtual: VirtualClock, seed: int) -> None:
    """Each fire has one execution, never due before it, and no placement keeps it from ending in time."""
    rng = random.Random(seed)
    await at_evening(virtual)
    windows = {}
    for number in range(8):
        takes = rng.choice([1, 10, 45])
        flexible = Flexible(within=f"{rng.choice([60, 180, 600])}m", takes=f"{takes}m")
        schedule = ScheduleSpec(cron=f"{rng.randrange(60)} */3 * * *")
        await add(fresh, f"job-{number}", schedule=schedule, flexible=flexible)
        windows[f"job-{number}"] = takes
    await busy_hours(fresh, "etl", f"{rng.randrange(60)} * * * *", minutes=rng.choice([5, 50]))
    schedulers, planner = [await scheduler_on(fresh)], StartPlanner(fresh)
    decided: dict[Any, datetime] = {}
    for _ in range(40):
        await virtual.advance(seconds=rng.choice([30, 300, 1200]))
        if rng.random() < 0.7:
            await planner.run_due()
        if rng.random() < 0.2:
            schedulers.append(await scheduler_on(fresh))
        for scheduler in rng.sample(schedulers, k=min(2, len(schedulers))):
            await step(scheduler)
        for job in windows:
            for found in await executions_of(fresh, job):
                if found.state == "waiting":
                    assert decided.setdefault(found.execution_id, found.due_at) == found.due_at, "moved"
    placed = 0
    for job, takes in windows.items():
        row = await refs.job_row(fresh, job, tenant=TENANT)
        rows = [e for e in await executions_of(fresh, job) if e.state != "skipped"]
        assert len({e.fire_at for e in rows}) == len(rows), "twice"
        for each in rows:
            assert row.flexible is not None and each.due_at >= each.fire_at, "early"
            end = instant(read_window(row.flexible).end_ms(millis(each.fire_at)))
            if each.due_at > each.fire_at:
                placed += 1
                assert each.due_at + timedelta(minutes=takes) + timedelta(minutes=1) <= end, "too late"
    assert placed, "the seed places nothing"

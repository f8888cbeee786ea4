"""Calendars: versions, what follows them, and edits that reach every schedule and the wheel at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import calendars, jobs
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import calendars as calendar_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.scheduling import TENANT, add, ledger, scheduler_on, step

pytestmark = pytest.mark.anyio

NOTHING = wire.CalendarDays()
TODAY = wire.CalendarDays(dates=[date(2026, 11, 16)])
TOMORROW = wire.CalendarDays(dates=[date(2026, 11, 17)])
MINUTELY = ScheduleSpec(every=60, aligned=True, calendar="days")


async def put(database: Database, days: wire.CalendarDays, name: str = "days", **more: Any) -> wire.CalendarChange:
    return await calendars.put(database, name, days, tenant=TENANT, by="test", **more)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-{text}").replace(tzinfo=UTC)


async def test_every_edit_is_a_version(fresh: Database) -> None:
    with pytest.raises(NotFound):
        await calendar_views.get(fresh, "days", tenant=TENANT)
    for days in (TODAY, TOMORROW, TOMORROW):
        await put(fresh, days)
    found = await calendar_views.get(fresh, "days", tenant=TENANT)
    assert (found.version, found.days, found.jobs) == (2, TOMORROW, 0), "writing the same again changes nothing"
    await calendars.delete(fresh, "days", tenant=TENANT, by="test")
    assert (await calendar_views.list_calendars(fresh, tenant=TENANT)).items == []
    await put(fresh, NOTHING)
    versions = await calendar_views.list_versions(fresh, "days", tenant=TENANT, limit=2)
    rest = await calendar_views.list_versions(fresh, "days", tenant=TENANT, limit=2, cursor=versions.next_cursor)
    assert [v.version for v in [*versions.items, *rest.items]] == [3, 2, 1], "a new one of the name goes on counting"
    with pytest.raises(NotFound):
        await calendar_views.get(fresh, "days", tenant=2)
    with pytest.raises(NotFound):
        await calendar_views.list_versions(fresh, "days", tenant=2)


async def test_an_edit_reaches_all_schedules_and_the_wheel(fresh: Database, virtual: VirtualClock) -> None:
    await put(fresh, NOTHING)
    await put(fresh, NOTHING, "other")
    await add(fresh, "alone", schedule=MINUTELY, overlap="allow")
    union = [MINUTELY, ScheduleSpec(cron="30 * * * * *", calendar="other")]
    await add(fresh, "union", schedule=union, overlap="allow")
    await add(fresh, "free", overlap="allow")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    change = await put(fresh, TODAY)
    assert change.jobs == 2
    for _ in range(4):
        await virtual.advance(seconds=15)
        await step(scheduler)
    assert [when for when, _, _ in await ledger(fresh, "alone")] == [60]
    assert [when for when, _, _ in await ledger(fresh, "union")] == [30, 60, 90]
    assert [when for when, _, _ in await ledger(fresh, "free")] == [60, 120]
    alone = await job_views.get(fresh, "alone", tenant=TENANT)
    assert (alone.version, alone.next_fire_at) == (1, at("17T00:00")), "the job is the same, its days are not"
    await put(fresh, TOMORROW)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert [when for when, _, _ in await ledger(fresh, "alone")] == [60, 180]


async def test_a_dry_run_tells_and_changes_nothing(fresh: Database, virtual: VirtualClock) -> None:
    await put(fresh, NOTHING)
    for n in range(7):
        await add(fresh, f"job-{n}", schedule=ScheduleSpec(cron=f"{n} 14 * * *", calendar="days"))
    change = await put(fresh, TODAY, dry_run=True)
    assert (change.jobs, [job.job for job in change.changed]) == (7, [f"job-{n}" for n in range(5)])
    first = change.changed[0]
    assert first.fires_before == [at("16T14:00"), at("17T14:00"), at("18T14:00")]
    assert first.fires_after == [at("17T14:00"), at("18T14:00"), at("19T14:00")]
    assert (await calendar_views.get(fresh, "days", tenant=TENANT)).version == 1
    assert (await job_views.get(fresh, "job-0", tenant=TENANT)).next_fire_at == at("16T14:00")
    assert (await put(fresh, NOTHING, dry_run=True)).jobs == 0
    assert (await put(fresh, wire.CalendarDays(dates=[date(2020, 1, 1)]), dry_run=True)).jobs == 7


async def test_what_nobody_decided_before_the_edit_is_on_record(fresh: Database, virtual: VirtualClock) -> None:
    await put(fresh, NOTHING)
    await add(fresh, "missed", schedule=MINUTELY)
    await add(fresh, "paused", schedule=MINUTELY, paused=True)
    await virtual.advance(seconds=200)
    await put(fresh, TODAY)
    await scheduler_on(fresh)
    (entry,) = (await fire_views.ledger(fresh, "missed", tenant=TENANT)).items
    assert (entry.state, entry.reason, entry.fires) == ("skipped", "rescheduled", 3)
    (entry,) = (await fire_views.ledger(fresh, "paused", tenant=TENANT)).items
    assert (entry.state, entry.reason, entry.fires) == ("skipped", "paused", 3)


async def test_an_edit_in_the_moment_of_a_tick(fresh: Database, virtual: VirtualClock) -> None:
    """Each instant is decided by the old days or by the new ones, once; ticks, edits and new jobs all at once."""
    await put(fresh, NOTHING)
    for n in range(12):
        await add(fresh, f"job-{n}", schedule=MINUTELY, overlap="allow")
    scheduler = await scheduler_on(fresh)
    for turn in range(10):
        await virtual.advance(seconds=60)
        await asyncio.gather(
            step(scheduler),
            put(fresh, TODAY if turn % 2 else NOTHING),
            add(fresh, f"new-{turn}", schedule=MINUTELY, overlap="allow"),
        )
        await step(scheduler)
        for n in range(12):
            entries = [entry for entry in await ledger(fresh, f"job-{n}") if entry[0] == 60 * (turn + 1)]
            assert len(entries) <= 1
            # Whoever was first: with the days open the instant is there, with them closed at the edit it is
            # either decided before or recorded as taken away; it is never decided twice and never early.
            assert all(state == "queued" or why == "rescheduled" for _, state, why in entries)
            if turn % 2 == 1:
                assert len(entries) == 1, "it was open until this edit: fired before it, or on record because of it"
        states = {(await job_views.get(fresh, f"new-{t}", tenant=TENANT)).next_fire_at for t in range(turn + 1)}
        states |= {(await job_views.get(fresh, f"job-{n}", tenant=TENANT)).next_fire_at for n in range(12)}
        assert len(states) == 1, "a job saved at the same time follows the same days"


async def test_counted_fires_stay_as_many(fresh: Database, virtual: VirtualClock) -> None:
    await put(fresh, NOTHING)
    daily = ScheduleSpec(cron="0 13 * * *", calendar="days", max_fires=4)
    await add(fresh, "counted", schedule=[daily, ScheduleSpec(cron="0 1 1 1 *")], overlap="allow")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(days=1)
        await step(scheduler)
    # Two have fired (16, 17); the days they were on are closed now, and the 19th as well.
    await put(fresh, wire.CalendarDays(dates=[date(2026, 11, day) for day in (16, 17, 19)]))
    fires = (await fire_views.of_job(fresh, "counted", tenant=TENANT, count=3)).fires
    assert fires == [at("18T13:00"), at("20T13:00"), datetime(2027, 1, 1, 1, tzinfo=UTC)]


async def test_a_calendar_in_use_is_not_deleted(fresh: Database) -> None:
    await put(fresh, NOTHING)
    for n in range(7):
        await add(fresh, f"job-{n}", schedule=MINUTELY)
    with pytest.raises(Conflict, match="in use by job-0, job-1, job-2, job-3, job-4 and 2 more") as refused:
        await calendars.delete(fresh, "days", tenant=TENANT, by="test")
    assert refused.value.code == "in_use"
    for n in range(7):
        row = await refs.job_row(fresh, f"job-{n}", tenant=TENANT)
        if n % 2:
            await jobs.delete(fresh, row.job_id, tenant=TENANT, by="test")
        else:
            await jobs.patch(fresh, row.job_id, {"schedule": {"calendar": None}}, tenant=TENANT, by="test")
    await calendars.delete(fresh, "days", tenant=TENANT, by="test")
    with pytest.raises(NotFound):
        await calendars.delete(fresh, "days", tenant=TENANT, by="test")
    row = await refs.job_row(fresh, "job-0", tenant=TENANT)
    with pytest.raises(Invalid, match="there is no calendar 'days'"):
        await jobs.rollback(fresh, row.job_id, 1, tenant=TENANT, by="test")


async def test_a_calendar_of_another_tenant_is_none(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute("INSERT INTO tenants (tenant_id, name) VALUES (2, 'neighbour')")
    await calendars.put(fresh, "days", TODAY, tenant=2, by="test")
    with pytest.raises(Invalid, match="there is no calendar 'days'"):
        await add(fresh, "job", schedule=MINUTELY)
    await put(fresh, NOTHING)
    await add(fresh, "job", schedule=MINUTELY)
    key = (await refs.job_row(fresh, "job", tenant=TENANT)).schedule_key
    assert (await calendars.put(fresh, "days", TOMORROW, tenant=2, by="test")).jobs == 0
    assert (await refs.job_row(fresh, "job", tenant=TENANT)).schedule_key == key


async def test_a_calendar_of_many_days_fits(fresh: Database, virtual: VirtualClock) -> None:
    """The content is in the schedule's key, which is longer than an index could hold."""
    first = date(2026, 11, 16)
    many = wire.CalendarDays(dates=[first + timedelta(days=n) for n in range(3650) if n != 3000])
    await put(fresh, many)
    for n in range(2):
        await add(fresh, f"rare-{n}", schedule=ScheduleSpec(cron="0 9 * * *", calendar="days"))
    rows = [await refs.job_row(fresh, f"rare-{n}", tenant=TENANT) for n in range(2)]
    assert rows[0].schedule_id == rows[1].schedule_id
    scheduler = await scheduler_on(fresh)
    fire_at = datetime(2035, 2, 2, 9, tzinfo=UTC)
    assert (await job_views.get(fresh, "rare-0", tenant=TENANT)).next_fire_at == fire_at
    await virtual.set(fire_at)
    await step(scheduler)
    assert [state for _, state, _ in await ledger(fresh, "rare-0")] == ["queued"]


async def test_the_closed_days_ahead(fresh: Database, virtual: VirtualClock) -> None:
    await put(fresh, wire.CalendarDays(dates=[date(2026, 11, 18)], rules=["* * SUN"]))
    found = await calendar_views.closed_days(fresh, "days", tenant=TENANT, count=10)
    assert found.closed == [date(2026, 11, 18), date(2026, 11, 22)]
    assert (found.first, found.last) == (START.date(), date(2026, 11, 25))
    with pytest.raises(Invalid):
        await calendar_views.closed_days(fresh, "days", tenant=TENANT, count=0)

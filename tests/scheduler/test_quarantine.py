"""A schedule that exceeds its step budget while firing: its jobs are paused, all others go on."""

from __future__ import annotations

import pytest

from mainspring import wire
from mainspring.alerts.readings import ReadingHistory, take_readings
from mainspring.domain.schedule import recurrence
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import calendars, jobs
from mainspring.scheduler.schedule_wheel import LISTED_FIRES, ScheduleWheel
from mainspring.store.db import Database
from mainspring.store.schedules import ShardSchedule
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import audit as audit_views
from mainspring.views import jobs as job_views
from mainspring.views import refs, why_execution, why_job
from tests.support.scheduling import TENANT, add, ledger, scheduler_on, sees_the_time, step

pytestmark = pytest.mark.anyio

DAYS = "days"
ODD_DAYS = wire.CalendarDays(rules=["*/2 * *"])
"""With the calendar closed on odd days, a job that fires on odd days only is searched for 50 years."""
NO_DAYS = wire.CalendarDays(rules=["25 12 *"])
START_MS = round(START.timestamp() * 1000)


async def put(database: Database, days: wire.CalendarDays) -> None:
    await calendars.put(database, DAYS, days, tenant=TENANT, by="test")


async def add_poison(database: Database) -> None:
    await put(database, NO_DAYS)
    await add(database, "poison", schedule=ScheduleSpec(cron="* * */2 * *", calendar=DAYS), overlap="allow")


async def paused_because(database: Database, name: str) -> str | None:
    return (await refs.job_row(database, name, tenant=TENANT)).pause_reason


async def test_its_jobs_are_paused_with_a_reason_and_others_go_on(fresh: Database, virtual: VirtualClock) -> None:
    await add_poison(fresh)
    await add(fresh, "healthy", overlap="allow")
    scheduler = await scheduler_on(fresh)
    assert await paused_because(fresh, "poison") is None
    await put(fresh, ODD_DAYS)
    for _ in range(3):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert (await paused_because(fresh, "poison") or "").startswith("schedule too costly: ")
    assert await paused_because(fresh, "healthy") is None
    assert await ledger(fresh, "healthy") == [(60 * n, "queued", None) for n in (1, 2, 3)]
    (job,) = (await job_views.list_jobs(fresh, tenant=TENANT, prefix="poison")).items
    assert (job.state, job.next_fire_at) == ("paused", None)

    checks = {check.name: check for check in await why_job.why_not(fresh, "poison", tenant=TENANT)}
    assert checks["Paused"].verdict == "stops" and "then resume the job" in checks["Paused"].words
    assert "too many steps" in checks["Schedule"].words
    why = await why_execution.job(fresh, "poison", tenant=TENANT)
    assert "schedule too costly" in why.reasons[0].message

    entries = await audit_views.list_entries(fresh, tenant=TENANT, action="job.pause")
    assert [(entry.name, entry.actor) for entry in entries.items] == [("poison", "the system")]
    async with fresh.connection() as connection:
        _, readings = await take_readings(connection, ReadingHistory())
    assert [(r.key, r.value) for r in readings if r.condition == "schedule_too_costly"] == [("poison", 1)]


async def test_after_an_edit_it_can_be_resumed(fresh: Database, virtual: VirtualClock) -> None:
    await add_poison(fresh)
    scheduler = await scheduler_on(fresh)
    await put(fresh, ODD_DAYS)
    await virtual.advance(seconds=30)
    await step(scheduler)
    row = await refs.job_row(fresh, "poison", tenant=TENANT)
    assert row.paused_at is not None

    await jobs.resume(fresh, row.job_id, tenant=TENANT)  # without a change it is paused again
    await step(scheduler)
    assert await paused_because(fresh, "poison") is not None

    changes = {"schedule": {"every": 60, "aligned": True}}
    await jobs.patch(fresh, row.job_id, changes, tenant=TENANT, by="test")
    await jobs.resume(fresh, row.job_id, tenant=TENANT)
    await step(scheduler)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await paused_because(fresh, "poison") is None
    assert await ledger(fresh, "poison") == [(60, "queued", None)]


async def test_an_old_owner_pauses_nothing(fresh: Database, virtual: VirtualClock) -> None:
    await add_poison(fresh)
    old = await scheduler_on(fresh)
    await put(fresh, ODD_DAYS)
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET epoch = epoch + 2")
    await virtual.advance(seconds=61)
    sees_the_time(old, virtual.now)
    await old.decide()
    assert await paused_because(fresh, "poison") is None
    await step(old)  # its beat has told it the new epoch
    assert await paused_because(fresh, "poison") is not None


async def test_a_scheduler_that_takes_over_pauses_it_too(fresh: Database, virtual: VirtualClock) -> None:
    await add_poison(fresh)
    await add(fresh, "healthy", overlap="allow")
    await put(fresh, ODD_DAYS)
    await virtual.advance(seconds=61)
    await scheduler_on(fresh)
    assert await paused_because(fresh, "poison") is not None
    assert await ledger(fresh, "healthy") == [(60, "queued", None)]


def row(schedule_id: int, key: str, active_from_ms: int = START_MS) -> ShardSchedule:
    return ShardSchedule(schedule_id, 3, key, 1, active_from_ms, False)


EVERY_SECOND = '{"every_ms":1000,"phase_ms":0}'
RULE = '{"rrule":"FREQ=SECONDLY","dtstart":"2026-01-01T00:00:00"}'


def test_a_due_instant_is_decided_though_the_next_one_is_too_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = ScheduleWheel(START_MS)
    assert wheel.add([row(1, RULE), row(2, EVERY_SECOND)], {3: START_MS}, upto_ms=START_MS) == []
    monkeypatch.setattr(recurrence, "FIRE_STEPS", 0)
    due = wheel.take_due(START_MS + 1000)
    assert [(one.schedule_id, one.fires) for one in due] == [(1, [START_MS + 1000]), (2, [START_MS + 1000])]
    assert wheel.too_costly == {1: 1 << 3}
    assert [one.schedule_id for one in wheel.take_due(START_MS + 2000)] == [2]
    wheel.paused(1, [3])
    assert wheel.too_costly == {} and wheel.get(1) is None


def test_a_shard_that_is_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = ScheduleWheel(START_MS)
    wheel.add([row(1, RULE), row(1, RULE)._replace(shard=4)], {3: START_MS, 4: START_MS}, upto_ms=START_MS)
    monkeypatch.setattr(recurrence, "FIRE_STEPS", 0)
    wheel.take_due(START_MS + 1000)
    assert wheel.too_costly == {1: 1 << 3 | 1 << 4}
    wheel.paused(1, [3])
    assert wheel.too_costly == {1: 1 << 4}
    wheel.forget_shards(1 << 4)
    assert wheel.too_costly == {}


@pytest.mark.fault("F24")
@pytest.mark.parametrize("key", [EVERY_SECOND, RULE])
def test_a_month_of_missed_seconds_is_a_range_and_no_list(key: str) -> None:
    wheel, month_ms = ScheduleWheel(START_MS), 30 * 86_400_000
    (missed,) = wheel.add([row(1, key)], {3: START_MS}, upto_ms=START_MS + month_ms)
    assert len(missed.fires) == LISTED_FIRES
    assert missed.fires[-1] == START_MS + month_ms
    assert missed.older == (START_MS, START_MS + 1000, START_MS + month_ms - LISTED_FIRES * 1000)
    assert missed.first_ms == START_MS + 1000


async def test_missed_seconds_are_counted_exactly(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "seconds", schedule=ScheduleSpec(every=1, aligned=True))
    await virtual.advance(seconds=3 * 86_400)
    await scheduler_on(fresh)
    async with fresh.connection() as connection:
        skipped = await connection.fetchval("SELECT sum(fires) FROM history WHERE state = 'skipped'")
        live = await connection.fetchval("SELECT count(*) FROM executions")
    assert skipped + live == 3 * 86_400

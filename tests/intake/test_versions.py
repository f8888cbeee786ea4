"""Versions, rollback, dry runs, previews and the ledger: what was, what would be, what became of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.job import JobSpec, Misfire, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.views import schedules as schedule_views
from tests.support.scheduling import TENANT, add, scheduler_on, step


async def test_a_rollback_is_a_new_version_and_takes_effect(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "edited", overlap="allow")
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    await jobs.patch(fresh, row.job_id, {"schedule": {"every": 45}, "priority": 9}, tenant=TENANT, by="second")
    await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="")
    await jobs.rollback(fresh, row.job_id, 1, tenant=TENANT, by="third")
    versions = (await job_views.list_versions(fresh, "edited", tenant=TENANT)).items
    assert [(v.version, v.created_by, v.spec.priority) for v in versions] == [
        (3, "third", 5),
        (2, "second", 9),
        (1, "test", 5),
    ]
    found = await job_views.get(fresh, "edited", tenant=TENANT)
    assert found.state == "paused", "a rollback does not start what was stopped"
    assert found.spec.schedule == versions[-1].spec.schedule
    with pytest.raises(NotFound, match="no version 7"):
        await jobs.rollback(fresh, row.job_id, 7, tenant=TENANT, by="third")


async def test_of_two_changes_made_for_one_version_the_second_is_refused(fresh: Database) -> None:
    await add(fresh, "edited")
    job_id = (await refs.job_row(fresh, "edited", tenant=TENANT)).job_id
    results = await asyncio.gather(
        *(jobs.patch(fresh, job_id, {"priority": n}, tenant=TENANT, by=str(n), seen=1) for n in range(4)),
        return_exceptions=True,
    )
    refused = [r for r in results if isinstance(r, Conflict)]
    assert [(r.code, r.problems[0].pointer) for r in refused] == [("version_changed", "/version")] * 3
    versions = (await job_views.list_versions(fresh, "edited", tenant=TENANT)).items
    assert [v.version for v in versions] == [2, 1]
    with pytest.raises(Conflict, match="has version 2 by now; this change was made for version 1"):
        await jobs.rollback(fresh, job_id, 1, tenant=TENANT, by="late", seen=1)
    await jobs.rollback(fresh, job_id, 1, tenant=TENANT, by="in time", seen=2)
    assert (await job_views.get(fresh, "edited", tenant=TENANT)).version == 3


async def test_versions_come_in_pages(fresh: Database) -> None:
    await add(fresh, "edited")
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    for n in range(4):
        await jobs.patch(fresh, row.job_id, {"description": str(n)}, tenant=TENANT, by="test")
    first = await job_views.list_versions(fresh, "edited", tenant=TENANT, limit=3)
    rest = await job_views.list_versions(fresh, "edited", tenant=TENANT, limit=3, cursor=first.next_cursor)
    assert [v.version for v in [*first.items, *rest.items]] == [5, 4, 3, 2, 1]
    assert rest.next_cursor is None


async def test_a_dry_run_shows_old_and_new_fires_and_writes_nothing(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "edited")
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    change = await jobs.preview_patch(fresh, row.job_id, {"schedule": {"every": 120, "aligned": True}}, tenant=TENANT)
    assert change.fires_before[:2] == [START + timedelta(seconds=60), START + timedelta(seconds=120)]
    assert change.fires_after[:2] == [START + timedelta(seconds=120), START + timedelta(seconds=240)]
    assert (await job_views.get(fresh, "edited", tenant=TENANT)).version == 1
    with pytest.raises(Invalid):
        await jobs.preview_patch(fresh, row.job_id, {"schedule": {"cron": "61 * * * *"}}, tenant=TENANT)


async def test_the_preview_gives_what_firing_does(fresh: Database, virtual: VirtualClock) -> None:
    schedule = ScheduleSpec(cron="*/7 * * * *", timezone="Asia/Kathmandu")
    preview = await schedule_views.preview(fresh, wire.PreviewRequest(schedule=schedule, count=5), tenant=TENANT)
    await add(fresh, "cron", schedule=schedule, overlap="allow")
    scheduler = await scheduler_on(fresh)
    for _ in range(34):
        await virtual.advance(minutes=1)
        await step(scheduler)
    ledger = (await fire_views.ledger(fresh, "cron", tenant=TENANT)).items
    assert [entry.fire_at for entry in reversed(ledger)] == preview.fires
    assert "steps of 7" in preview.description, "not every 7 minutes: it starts anew each hour"


@pytest.mark.requirement(14)
async def test_the_ledger_has_an_entry_for_every_instant(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "missed", misfire=Misfire(policy="latest"))
    await virtual.advance(seconds=200)
    await scheduler_on(fresh)
    page = await fire_views.ledger(fresh, "missed", tenant=TENANT, limit=2)
    rest = await fire_views.ledger(fresh, "missed", tenant=TENANT, limit=2, cursor=page.next_cursor)
    entries = [*page.items, *rest.items]
    assert [(e.fire_at - START, e.state, e.reason) for e in entries] == [
        (timedelta(seconds=180), "queued", None),
        (timedelta(seconds=120), "skipped", "misfire"),
        (timedelta(seconds=60), "skipped", "misfire"),
    ]


async def test_a_bad_schedule_is_refused_by_the_preview_as_by_the_job(fresh: Database) -> None:
    request = wire.PreviewRequest(schedule=ScheduleSpec(cron="0 25 * * *"))
    with pytest.raises(Invalid) as preview:
        await schedule_views.preview(fresh, request, tenant=TENANT)
    with pytest.raises(Invalid) as job:
        await jobs.create(
            fresh, JobSpec(name="bad", task=NoopTask(), schedule=request.schedule), tenant=TENANT, by="test"
        )
    assert preview.value.problems == job.value.problems
    assert preview.value.problems[0].pointer == "/schedule/cron"


async def test_what_was_not_said_is_not_stored(fresh: Database) -> None:
    """A server of the last release reads what this one has written, as long as nobody uses what it does not know."""
    await add(fresh, "plain", metadata={"kept": None})
    async with fresh.connection() as connection:
        spec = await connection.fetchval("SELECT spec FROM job_versions")
    assert spec["metadata"] == {"kept": None}
    assert not {"pause_after_failures", "start_by", "finish_by", "max_gap"} & spec.keys()


@pytest.mark.parametrize("edit", ["pause", "delete", "reschedule"])
async def test_what_nobody_decided_before_an_edit_is_on_record(
    fresh: Database, virtual: VirtualClock, edit: str
) -> None:
    """No scheduler lives while three instants come due; then the job is changed. None of them vanishes."""
    await add(fresh, "edited")
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    await virtual.advance(seconds=200)
    match edit:
        case "pause":
            await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="")
        case "delete":
            await jobs.delete(fresh, row.job_id, tenant=TENANT, by="test")
        case "reschedule":
            await jobs.patch(fresh, row.job_id, {"schedule": {"every": 3600}}, tenant=TENANT, by="test")
    await scheduler_on(fresh)
    (entry,) = (await fire_views.ledger(fresh, str(row.job_id), tenant=TENANT)).items
    assert (entry.fire_at - START, entry.state, entry.fires) == (timedelta(seconds=180), "skipped", 3)
    assert entry.reason == {"pause": "paused", "delete": "deleted", "reschedule": "rescheduled"}[edit]


async def test_an_edit_that_touches_no_schedule_takes_nothing_away(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "edited")
    row = await refs.job_row(fresh, "edited", tenant=TENANT)
    await virtual.advance(seconds=70)
    await jobs.patch(fresh, row.job_id, {"description": "better"}, tenant=TENANT, by="test")
    await scheduler_on(fresh)
    (entry,) = (await fire_views.ledger(fresh, "edited", tenant=TENANT)).items
    assert (entry.fire_at - START, entry.state) == (timedelta(seconds=60), "queued")


async def test_the_ledger_says_what_a_skipped_hour_made_of_a_fire(fresh: Database, virtual: VirtualClock) -> None:
    await virtual.set(datetime(2027, 3, 27, 23, 0, tzinfo=UTC))
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET watermark = $1", virtual.now)
    merging = ScheduleSpec(cron="0,30 1-2 * * *", timezone="Europe/Berlin")
    await add(fresh, "merging", schedule=merging, overlap="allow")
    fires = await fire_views.of_job(fresh, "merging", tenant=TENANT)
    assert fires.notes[0] == "2027-03-28 02:00 to 02:30 do not exist in Europe/Berlin: fires once, at 03:00"
    assert fires.timezone == "Europe/Berlin"
    scheduler = await scheduler_on(fresh)
    for _ in range(4):
        await virtual.advance(minutes=30)
        await step(scheduler)
    entries = (await fire_views.ledger(fresh, "merging", tenant=TENANT)).items
    assert [(entry.fire_at.hour, entry.fire_at.minute, entry.note) for entry in entries] == [
        (1, 0, "stands for 2027-03-28 02:00 to 02:30, which do not exist in Europe/Berlin, merged into one"),
        (0, 30, None),
        (0, 0, None),
    ]

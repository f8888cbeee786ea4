"""What people see of jobs, under a clock that stands still."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import executions, jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import logs as log_views

TENANT = 1


async def add(database: Database, name: str, **spec: Any) -> Any:
    return await jobs.create(database, JobSpec(name=name, task=NoopTask(), **spec), tenant=TENANT, by="test")


@pytest.mark.requirement(5)
async def test_fires_lie_within_start_and_end(fresh: Database, virtual: VirtualClock) -> None:
    start, end = START + timedelta(minutes=10), START + timedelta(minutes=12)
    schedule = ScheduleSpec(every=60, aligned=True, start_at=start.isoformat(), end_at=end.isoformat())
    await add(fresh, "window", schedule=schedule)
    fires = await fire_views.of_job(fresh, "window", tenant=TENANT)
    assert fires.fires == [start, start + timedelta(minutes=1), end], "both ends included"
    assert (await job_views.get(fresh, "window", tenant=TENANT)).next_fire_at == start
    await virtual.set(end)
    job = await job_views.get(fresh, "window", tenant=TENANT)
    assert (job.state, job.next_fire_at) == ("finished", None)


async def test_a_paused_one_time_job_waits_and_is_skipped_when_its_time_passes(
    fresh: Database, virtual: VirtualClock
) -> None:
    at = (START + timedelta(hours=1)).isoformat()
    job_id = await add(fresh, "once", schedule=ScheduleSpec(at=at))
    await jobs.pause(fresh, job_id, tenant=TENANT, reason="")
    assert (await job_views.get(fresh, "once", tenant=TENANT)).state == "paused"
    await virtual.advance(hours=2)
    await jobs.resume(fresh, job_id, tenant=TENANT)
    (execution,) = (await execution_views.list_executions(fresh, tenant=TENANT)).items
    assert (execution.state, execution.reason) == ("skipped", "paused")
    assert (await job_views.get(fresh, "once", tenant=TENANT)).state == "finished"


async def test_what_was_cancelled_long_before_its_time_is_found(fresh: Database, virtual: VirtualClock) -> None:
    """Its id names an instant after the day it ended."""
    job_id = await add(fresh, "later")
    at = START + timedelta(days=40)
    execution = await Submitter(fresh).submit(Submission(TENANT, "test", job_id, at))
    await executions.cancel(fresh, execution, tenant=TENANT, by="test", reason="")
    for now in (START, at + timedelta(days=1)):
        await virtual.set(now)
        assert (await execution_views.get(fresh, execution, tenant=TENANT)).state == "cancelled"


async def test_a_time_in_the_past_means_now(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await add(fresh, "late")
    submitted = await Submitter(fresh).submit(Submission(TENANT, "test", job_id, START - timedelta(days=9)))
    found = await execution_views.get(fresh, submitted, tenant=TENANT)
    assert (found.state, found.due_at) == ("queued", START)


@pytest.mark.parametrize("place", ["x", "1", "1.", ".1", "1.2.3", "-1.0", "1.-2", "99999.0", "1.9999999999", "1.0\n"])
def test_what_is_no_place(place: str) -> None:
    with pytest.raises(Invalid):
        log_views.parse_place(place)


def test_places() -> None:
    assert log_views.parse_place(None) == log_views.parse_place("0.-1") == (0, -1)
    assert log_views.parse_place("3.17") == (3, 17)


async def test_the_next_fires_of_all_jobs_have_one_time_jobs_among_them(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "hourly", schedule=ScheduleSpec(cron="0 * * * *"))
    for name, minutes in (("soon", 30), ("later", 90), ("held", 10)):
        at = START + timedelta(minutes=minutes)
        await add(fresh, name, schedule=ScheduleSpec(at=at.isoformat()), paused=name == "held")
    on_demand = await add(fresh, "on-demand")
    submission = Submission(TENANT, "test", on_demand, START + timedelta(minutes=5))
    await Submitter(fresh).submit(submission)
    found = [(at - START, name) for at, _, name in await fire_views.upcoming(fresh, tenant=TENANT)]
    assert found == [
        (timedelta(minutes=30), "soon"),
        (timedelta(minutes=60), "hourly"),
        (timedelta(minutes=90), "later"),
    ], "a pause holds one back, and a submission is no fire"
    assert await fire_views.upcoming(fresh, tenant=TENANT + 1) == []
    await virtual.advance(minutes=45)
    assert [name for _, _, name in await fire_views.upcoming(fresh, tenant=TENANT)] == ["hourly", "later"]

"""Why a job does not run: every check, each provoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import blackouts, dependencies, jobs, queues
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import why_job
from mainspring.views.why_job import Check

TENANT = 1


async def add(database: Database, name: str, **spec: Any) -> UUID:
    return await jobs.create(database, JobSpec(name=name, task=NoopTask(), **spec), tenant=TENANT, by="test")


async def seen(database: Database, name: str) -> dict[str, Check]:
    return {check.name: check for check in await why_job.why_not(database, name, tenant=TENANT)}


async def test_a_job_that_only_waits_for_its_time(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "calm", schedule=ScheduleSpec(every=3600, aligned=True))
    found = await seen(fresh, "calm")
    assert list(found) == ["Paused", "Schedule", "Blackout", "Overlap", "Queue", "Worker"]
    assert (found["Schedule"].verdict, found["Schedule"].until) == ("ok", START + timedelta(hours=1))
    assert found["Worker"].words == "no worker serves the queue short"
    assert {c.verdict for n, c in found.items() if n != "Worker"} == {"ok"}


async def test_a_pause_comes_first_with_its_reason_and_its_end(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await add(fresh, "rests", schedule=ScheduleSpec(every=60))
    until = START + timedelta(hours=2)
    await jobs.pause(fresh, job_id, tenant=TENANT, reason="repairs", until=until)
    (first, *_) = await why_job.why_not(fresh, "rests", tenant=TENANT)
    assert (first.name, first.verdict, first.until) == ("Paused", "stops", until)
    assert first.words.endswith("UTC: repairs")


async def test_a_schedule_that_has_not_begun_has_ended_or_is_not_there(fresh: Database, virtual: VirtualClock) -> None:
    start, end = START + timedelta(hours=1), START + timedelta(hours=2)
    await add(fresh, "later", schedule=ScheduleSpec(every=60, start_at=start.isoformat(), end_at=end.isoformat()))
    await add(fresh, "manual")
    found = (await seen(fresh, "later"))["Schedule"]
    assert (found.verdict, found.words, found.until) == ("stops", "it has not started", start)
    await virtual.set(end + timedelta(hours=1))
    found = (await seen(fresh, "later"))["Schedule"]
    assert found.verdict == "stops"
    assert "it has ended on" in found.words
    assert (await seen(fresh, "manual"))["Schedule"].verdict == "note"


async def test_a_blackout_now_or_at_the_next_fire(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "dark", schedule=ScheduleSpec(every=3600, aligned=True))
    start, end = START + timedelta(minutes=50), START + timedelta(minutes=70)
    # Of a queue that the job does not name, but is in.
    request = wire.NewBlackout(queue="short", start_at=start, end_at=end, reason="test")
    await blackouts.create(fresh, request, tenant=TENANT, by="test")
    found = (await seen(fresh, "dark"))["Blackout"]
    assert (found.verdict, found.words, found.until) == ("stops", "the next fire falls into one, which ends", end)
    await virtual.set(start + timedelta(minutes=1))
    assert (await seen(fresh, "dark"))["Blackout"].words == "one is active"
    await virtual.set(end + timedelta(minutes=1))
    assert (await seen(fresh, "dark"))["Blackout"].verdict == "ok"


async def test_what_it_needs(fresh: Database) -> None:
    await add(fresh, "parent")
    await add(fresh, "child")
    await dependencies.add(fresh, "child", wire.NewDependency(job="parent"), tenant=TENANT, by="test")
    found = (await seen(fresh, "child"))["Dependencies"]
    assert (found.verdict, found.words) == ("stops", "it waits for parent (pending)")
    await dependencies.free(fresh, "parent", "no need", freed_as="forced", tenant=TENANT, by="test")
    assert "Dependencies" in await seen(fresh, "child")


async def test_one_that_is_alive_and_why_it_waits(fresh: Database) -> None:
    job_id = await add(fresh, "busy", queue="nobody", schedule=ScheduleSpec(every=3600))
    execution = await Submitter(fresh).submit(Submission(TENANT, "test", job_id))
    found = await seen(fresh, "busy")
    assert (found["Overlap"].verdict, found["Overlap"].holders) == ("stops", [execution])
    assert found["Waiting now"].words == "no worker serves the queue nobody"
    await jobs.patch(fresh, job_id, {"overlap": "allow"}, tenant=TENANT, by="test")
    assert (await seen(fresh, "busy"))["Overlap"].verdict == "note"


async def test_a_queue_that_is_paused_and_a_calendar_that_is_followed(fresh: Database) -> None:
    await add(fresh, "queued", queue="slow", concurrency=Concurrency("k", 1))
    await queues.change(fresh, "slow", {"paused": True}, tenant=TENANT, by="test")
    found = await seen(fresh, "queued")
    assert (found["Queue"].verdict, found["Queue"].words) == ("stops", "the queue slow is paused")


async def test_a_fire_that_was_missed_and_the_policy(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await add(fresh, "missed", schedule=ScheduleSpec(every=60, aligned=True))
    await jobs.pause(fresh, job_id, tenant=TENANT, reason="")
    await virtual.advance(minutes=5)
    await jobs.resume(fresh, job_id, tenant=TENANT)
    found = (await seen(fresh, "missed"))["Latest fire"]
    assert found.verdict == "note"
    assert "was skipped: the job was paused (misfire policy latest, within 24h)" in found.words


async def test_a_deleted_job_has_one_answer(fresh: Database) -> None:
    job_id = await add(fresh, "gone")
    await jobs.delete(fresh, job_id, tenant=TENANT, by="test")
    found = await why_job.why_not(fresh, str(job_id), tenant=TENANT)
    assert [check.name for check in found] == ["Deleted"]

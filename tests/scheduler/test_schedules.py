"""Every kind of schedule through real firing: the ledger has exactly the instants the preview gave."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.clock import millis
from mainspring.domain.schedule.jitter import jitter_ms
from mainspring.domain.schedule.schedule import ScheduleSpec, ScheduleSpecs
from mainspring.intake import calendars, executions, jobs
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.views import schedules as schedule_views
from tests.conftest import Cluster
from tests.support.scheduling import TENANT, add, finish_all, ledger, scheduler_on, step

pytestmark = pytest.mark.anyio

HOLIDAYS = wire.CalendarDays(dates=[date(2026, 11, 18), date(2026, 11, 20)], rules=["* * SAT,SUN"])
BERLIN = "Europe/Berlin"
SPRING = datetime(2027, 3, 27, 12, 0, tzinfo=UTC)
AUTUMN = datetime(2027, 10, 30, 12, 0, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def spec(**fields: Any) -> ScheduleSpec:
    return ScheduleSpec(**fields)


# What, from when on, in which steps and how many of them, and how many fires that gives.
KINDS: dict[str, tuple[ScheduleSpecs, datetime, timedelta, int, int]] = {
    "cron": (spec(cron="*/20 9-11 * * *", timezone="Asia/Tokyo"), START, timedelta(minutes=20), 72, 9),
    "every": (spec(every="7m"), START, timedelta(minutes=7), 10, 10),
    "rrule": (spec(rrule="FREQ=HOURLY;INTERVAL=5", dtstart="2026-11-16T13:00:00"), START, timedelta(hours=1), 24, 5),
    "union": (
        [spec(cron="0 14 * * *"), spec(every="6h", aligned=True), spec(at="2026-11-16T15:30:00Z")],
        START, timedelta(minutes=30), 48, 6,
    ),
    "union that meets itself": (
        [spec(cron="0 * * * *"), spec(cron="0 */2 * * *"), spec(cron="30 13 * * *", max_fires=1)],
        START, timedelta(minutes=30), 24, 13,
    ),
    "union with windows": (
        [spec(every="1h", aligned=True, end_at="2026-11-16T14:00:00Z"), spec(every="1h", aligned=True,
                                                                           start_at="2026-11-16T16:00:00Z")],
        START, timedelta(hours=1), 6, 5,
    ),
    "calendar": (spec(cron="0 9 * * *", calendar="holidays"), START, timedelta(hours=3), 80, 6),
    "calendar, rolled on": (
        spec(cron="0 9 18 * *", calendar="holidays", roll="next"), START, timedelta(hours=3), 40, 1,
    ),
    "calendar, rolled back": (
        spec(cron="30 10 * * WED,FRI", calendar="holidays", roll="previous"), START, timedelta(hours=3), 80, 3,
    ),
    "calendar in a zone": (
        spec(cron="30 0 * * *", timezone="Asia/Tokyo", calendar="holidays"), START, timedelta(hours=3), 80, 6,
    ),
    "jitter": (spec(cron="0 * * * *", jitter="20m"), START, timedelta(minutes=30), 12, 6),
    "max_fires": (spec(every="10m", max_fires=4), START, timedelta(minutes=10), 8, 4),
    "DST gap": (spec(cron="0,15,30,45 2 * * *", timezone=BERLIN), SPRING, timedelta(minutes=15), 150, 5),
    "DST gap, skipped": (spec(cron="30 2 * * *", timezone=BERLIN, gap="skip"), SPRING, timedelta(minutes=30), 80, 1),
    "repeated hour": (
        spec(cron="30 2 * * *", timezone=BERLIN, overlap_hour="both"), AUTUMN, timedelta(minutes=30), 80, 3,
    ),
    "repeated hour by the wildcard": (spec(cron="*/30 2 * * *", timezone=BERLIN), AUTUMN, timedelta(minutes=30), 40, 4),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_firing_does_what_the_preview_says(fresh: Database, virtual: VirtualClock, kind: str) -> None:
    schedule, start, by, steps, fires = KINDS[kind]
    await virtual.set(start)
    await calendars.put(fresh, "holidays", HOLIDAYS, tenant=TENANT, by="test")
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET watermark = $1", start)
    preview = await schedule_views.preview(fresh, wire.PreviewRequest(schedule=schedule, count=100), tenant=TENANT)
    expected = [at for at in preview.fires if at <= start + by * steps]
    assert len(expected) == fires, expected
    await add(fresh, "kind", schedule=schedule, overlap="allow")
    scheduler = await scheduler_on(fresh)
    for _ in range(steps):
        await virtual.set(virtual.now + by)
        await step(scheduler)
    entries = (await fire_views.ledger(fresh, "kind", tenant=TENANT, limit=500)).items
    assert [entry.fire_at for entry in reversed(entries)] == expected
    assert {entry.fires for entry in entries} == {1}
    job = await job_views.get(fresh, "kind", tenant=TENANT)
    assert job.next_fire_at == next((at for at in preview.fires if at > virtual.now), None)


async def test_a_list_merges_by_replacing_and_an_object_by_its_fields(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", schedule=[spec(every="1h"), spec(cron="30 * * * *")])
    row = await refs.job_row(fresh, "job", tenant=TENANT)
    assert row.spec.overlap_policy == "skip"

    async def patched(schedule: Any) -> ScheduleSpecs | None:
        change = await jobs.preview_patch(fresh, row.job_id, {"schedule": schedule}, tenant=TENANT)
        await jobs.patch(fresh, row.job_id, {"schedule": schedule}, tenant=TENANT, by="test")
        found = await job_views.get(fresh, "job", tenant=TENANT)
        assert found.spec == change.spec
        assert [found.next_fire_at] == change.fires_after[:1]
        return found.spec.schedule

    assert await patched([{"cron": "5 * * * *"}]) == [spec(cron="5 * * * *")]
    assert await patched({"cron": "6 * * * *", "jitter": "10s"}) == spec(cron="6 * * * *", jitter="10s")
    assert await patched({"timezone": BERLIN}) == spec(cron="6 * * * *", jitter="10s", timezone=BERLIN)
    assert await patched({"at": "2026-11-16T18:00:00Z"}) == spec(at="2026-11-16T18:00:00Z", timezone=BERLIN)
    twice = [spec(at="2026-11-16T18:00:00Z"), spec(at="2026-11-16T19:00:00Z")]
    assert await patched([{"at": "2026-11-16T18:00:00Z"}, {"at": "2026-11-16T19:00:00Z"}]) == twice
    assert (await refs.job_row(fresh, "job", tenant=TENANT)).spec.overlap_policy == "skip"
    await jobs.rollback(fresh, row.job_id, 1, tenant=TENANT, by="test")
    fires = await fire_views.of_job(fresh, "job", tenant=TENANT, count=3)
    assert fires.fires == [START + timedelta(minutes=m) for m in (30, 60, 90)]
    assert fires.description == "every hour; and every hour at minute 30"


async def test_one_time_members_that_meet_are_one_fire(fresh: Database, virtual: VirtualClock) -> None:
    same = [spec(at="2026-11-16T13:00:00Z"), spec(at="2026-11-16T14:00:00+01:00")]
    await add(fresh, "once", schedule=same)
    assert (await job_views.get(fresh, "once", tenant=TENANT)).next_fire_at == START + timedelta(hours=1)
    scheduler = await scheduler_on(fresh)
    await virtual.advance(hours=1)
    await step(scheduler)
    await finish_all(fresh)
    assert await ledger(fresh, "once") == [(3600, "succeeded", None)]
    assert (await job_views.get(fresh, "once", tenant=TENANT)).state == "finished"


# Counting ---------------------------------------------------------------------------------------------


async def test_after_its_last_fire_a_job_is_finished_and_stays_readable(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "counted", schedule=spec(every="1m", aligned=True, max_fires=3), overlap="allow")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=70)
    await step(scheduler)
    row = await refs.job_row(fresh, "counted", tenant=TENANT)
    await jobs.patch(fresh, row.job_id, {"description": "the count goes on"}, tenant=TENANT, by="test")
    for _ in range(4):
        await virtual.advance(seconds=60)
        await step(scheduler)
        await finish_all(fresh)
    assert [at for at, _, _ in await ledger(fresh, "counted")] == [60, 120, 180]
    job = await job_views.get(fresh, "counted", tenant=TENANT)
    assert (job.state, job.next_fire_at, job.schedule_description) == ("finished", None, "every minute, 3 times")
    await jobs.patch(fresh, row.job_id, {"schedule": {"max_fires": 2}}, tenant=TENANT, by="test")
    for _ in range(4):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert [at for at, _, _ in await ledger(fresh, "counted")] == [60, 120, 180, 360, 420], "a new schedule counts anew"


# Jitter -----------------------------------------------------------------------------------------------


async def executions_of(database: Database, job: str) -> list[wire.Execution]:
    return list(reversed((await execution_views.list_executions(database, tenant=TENANT, job=job, limit=500)).items))


async def test_jitter_is_the_same_in_sql_and_python(database: Database) -> None:
    ids = [UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)) for n in range(300)]
    async with database.connection() as connection:
        for most, gap in (
            (30_000, None),
            (30_000, 60_000),
            (60_000, 1_000),
            (5, 3),
            (1, 1),
            (None, 60_000),
            (86_400_000, 10**11),
        ):
            rows = await connection.fetch(
                "SELECT jitter_ms(id, $2, $3) FROM unnest($1::uuid[]) WITH ORDINALITY AS u (id, n) ORDER BY n",
                ids,
                most,
                gap,
            )
            assert [r[0] for r in rows] == [jitter_ms(execution_id, most or 0, gap) for execution_id in ids]


async def test_a_jittered_fire_waits_and_keeps_its_name(fresh: Database, virtual: VirtualClock) -> None:
    for n in range(20):
        await add(fresh, f"spread-{n}", schedule=spec(every="1m", aligned=True, jitter="30s"))
    await add(fresh, "prompt")
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await ledger(fresh, "prompt") == [(60, "queued", None)]
    fires = [(await executions_of(fresh, f"spread-{n}"))[0] for n in range(20)]
    fire_at = START + timedelta(seconds=60)
    for fire in fires:
        delay = jitter_ms(fire.execution_id, 30_000, 60_000)
        assert (fire.fire_at, fire.due_at) == (fire_at, fire_at + timedelta(milliseconds=delay))
        assert fire.state == ("waiting" if delay else "queued")
    delays = sorted(millis(fire.due_at) - millis(fire_at) for fire in fires)
    assert delays[0] < 10_000 and delays[-1] > 20_000, "they are spread"
    assert scheduler._promotion.next_ms is not None and scheduler._promotion.next_ms == millis(fire_at) + min(
        filter(None, delays)
    )
    await virtual.set(fire_at + timedelta(seconds=15))
    await step(scheduler)
    for fire in fires:
        state = (await execution_views.get(fresh, fire.execution_id, tenant=TENANT)).state
        assert state == ("queued" if fire.due_at <= virtual.now else "waiting")
    await virtual.set(fire_at + timedelta(seconds=30))
    await step(scheduler)
    assert {(await executions_of(fresh, f"spread-{n}"))[0].state for n in range(20)} == {"queued"}


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["waiting", "skipped"]),
        ("queue_one", ["waiting", "skipped"]),
        ("queue_all", ["waiting", "blocked"]),
        ("cancel_running", ["cancelled", "waiting"]),
        ("allow", ["waiting", "waiting"]),
    ],
)
async def test_a_jittered_fire_lives_before_it_starts(
    fresh: Database, virtual: VirtualClock, overlap: Any, expected: list[str]
) -> None:
    """Held back by hand beyond the next fire, as a pause of the promoting scheduler would do."""
    await add(fresh, "job", schedule=spec(every="1m", aligned=True, jitter="50s"), overlap=overlap)
    scheduler = await scheduler_on(fresh)
    await virtual.advance(seconds=60)
    await step(scheduler)
    async with fresh.connection() as connection:
        await connection.execute("UPDATE executions SET due_at = due_at + interval '1 hour', state = 'waiting'")
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert [e.state for e in await executions_of(fresh, "job")] == expected


async def test_what_is_released_before_its_delay_waits_for_it(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "job", schedule=spec(every="1m", aligned=True, jitter="50s"), overlap="queue_all")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    first, second = await executions_of(fresh, "job")
    assert (first.state, second.state) == ("queued", "blocked")
    await executions.cancel(fresh, first.execution_id, tenant=TENANT, by="test", reason="")
    assert (await executions_of(fresh, "job"))[1].state == "waiting"
    await virtual.set(second.due_at)
    scheduler._on_gap()  # the NOTIFY of the release, which this scheduler does not hear
    await step(scheduler)
    assert (await executions_of(fresh, "job"))[1].state == "queued"


# In real time ----------------------------------------------------------------------------------------


async def finished(client: AsyncClient, job: str, count: int) -> list[wire.Execution]:
    """The next few executions of a job that succeed."""
    found: list[wire.Execution] = []
    async for execution in client.feed():
        if execution.job == job and execution.state == "succeeded":
            found.append(execution)
            if len(found) == count:
                break
    return found


async def test_a_jittered_fire_starts_when_it_is_due(cluster: Cluster) -> None:
    schedule = {"every": 1, "jitter": "900ms"}
    async with cluster.client() as client, cluster.worker():
        await client.create_job({"name": "spread", "task": {"kind": "noop"}, "schedule": schedule})
        ran = await finished(client, "spread", 3)
        await client.delete_job("spread")
    for execution in ran:
        delay = timedelta(milliseconds=jitter_ms(execution.execution_id, 900, 1000))
        assert execution.due_at == execution.fire_at + delay
        assert execution.started_at is not None and execution.started_at >= execution.due_at


async def test_a_blackout_is_over_when_it_is_over(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker():
        spec = {"name": "held", "task": {"kind": "noop"}, "schedule": {"every": 1}, "overlap": "allow"}
        await client.create_job(spec)
        await finished(client, "held", 1)
        async with cluster.database.connection() as connection:
            now = await connection.fetchval("SELECT db_now()")
        blackout = await client.add_blackout(wire.NewBlackout(start_at=now, end_at=now + timedelta(seconds=3)))
        assert blackout.end_at is not None
        await finished(client, "held", 3)
        await client.delete_job("held")
        known = [e for e in (await client.executions(limit=100)).items if e.job == "held"]
    # A fire of the moment in which the blackout was added may have been decided before.
    inside = [e for e in known if now + timedelta(milliseconds=500) < e.fire_at < blackout.end_at]
    assert [e.state for e in inside if e.started_at is not None and e.started_at < blackout.end_at] == []
    assert {e.reason for e in inside if e.state == "skipped"} == {"blackout"}
    assert [e.due_at for e in inside if e.state != "skipped"] == [blackout.end_at], "the latest waited for the end"

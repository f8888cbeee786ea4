"""Backfills under a clock the test moves: which instants, in which order, how many at a time, whatever crashes."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.execution import execution_id
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.backfill import backfill_key
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties import backfill_feeder
from mainspring.intake import backfills, jobs
from mainspring.store import backfills as rows
from mainspring.store.db import Database
from mainspring.store.doctor import examine
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import backfills as backfill_views
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.policies import LONG
from tests.support.scheduling import add, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio

Crash = type("Crash", (Exception,), {})


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def request(start: float, end: float | None, **more: Any) -> wire.BackfillRequest:
    return wire.BackfillRequest(from_=at(start), to=None if end is None else at(end), **more)


class Past:
    """A job that is due every minute, with a backfill over the ten minutes before it was created."""

    def __init__(self, database: Database, virtual: VirtualClock) -> None:
        self.database, self.virtual = database, virtual
        self.bench = SettlingBench(database)
        self.session = UUID(int=0)

    async def start(self, name: str = "past", **spec: Any) -> None:
        spec.setdefault("overlap", "skip")
        await add(self.database, name, retries=RetryPolicy(max=0), **spec)
        self.session = await self.bench.session(LONG)

    async def backfill(self, start: float = -600, end: float | None = 0, **more: Any) -> UUID:
        return await backfills.create(self.database, "past", request(start, end, **more), tenant=TENANT, by="test")

    async def live(self, backfill: UUID) -> list[float]:
        """The instants of its live executions, in the order in which workers get them."""
        async with self.database.connection() as connection:
            found = await connection.fetch(
                "SELECT fire_at FROM executions WHERE backfill_id = $1 ORDER BY rank, execution_id", backfill
            )
        return [(r["fire_at"] - START).total_seconds() for r in found]

    async def work(self, outcome: str = "succeeded", slots: int = 1) -> list[float]:
        """Claims and ends; returns the instants."""
        claimed = await self.bench.claim(self.session, slots=slots)
        for row in claimed:
            assert await self.bench.end(row["execution_id"], self.session, outcome)
        return [(row["fire_at"] - START).total_seconds() for row in claimed]

    async def drain(self, backfill: UUID) -> list[float]:
        """Feeds and works until it has ended; returns the instants as they were executed."""
        done: list[float] = []
        while await backfill_feeder.feed_all(self.database):
            done += await self.work(slots=100)
        assert (await self.look(backfill)).state == "finished"
        return done

    async def look(self, backfill: UUID) -> wire.Backfill:
        return await backfill_views.get(self.database, backfill, tenant=TENANT)


@pytest.fixture
async def past(fresh: Database, virtual: VirtualClock) -> Past:
    past = Past(fresh, virtual)
    await past.start()
    return past


TEN = [float(s) for s in range(-600, 0, 60)]


@pytest.mark.parametrize(("order", "expected"), [("oldest", TEN), ("newest", TEN[::-1])])
async def test_at_most_so_many_live_at_a_time_in_order(past: Past, order: Any, expected: list[float]) -> None:
    backfill = await past.backfill(order=order, concurrency=3)
    await backfill_feeder.feed_all(past.database)
    await backfill_feeder.feed_all(past.database)
    assert await past.live(backfill) == expected[:3]
    assert await past.work() == expected[:1]
    await backfill_feeder.feed_all(past.database)
    assert await past.live(backfill) == expected[1:4]
    assert await past.drain(backfill) == expected[1:]
    found = await past.look(backfill)
    assert (found.instants, found.made, found.left_out, found.executions) == (10, 10, 0, {"succeeded": 10})
    assert found.ended_at == past.virtual.now


async def test_executions_say_where_they_come_from(past: Past) -> None:
    backfill = await past.backfill(-60, 0, params={"region": "eu"})
    await backfill_feeder.feed_all(past.database)
    (execution,) = (await execution_views.list_executions(past.database, tenant=TENANT, job="past")).items
    row = await refs.job_row(past.database, "past", tenant=TENANT)
    ms = round(at(-60).timestamp() * 1000)
    assert execution.execution_id == execution_id(row.job_id, ms, backfill_key(backfill, ms))
    assert (execution.backfill_id, execution.trigger, execution.fire_at) == (backfill, "backfill", at(-60))
    assert (execution.due_at, execution.priority, execution.params) == (START, 2, {"region": "eu"})
    await past.drain(backfill)
    assert (await past.bench.look(execution.execution_id)).backfill_id == backfill, "also when it is history"
    assert (await fire_views.ledger(past.database, "past", tenant=TENANT)).items == [], (
        "the cadence's ledger is its own"
    )


async def test_the_range_is_half_open_and_ends_now_by_default(past: Past) -> None:
    assert await past.drain(await past.backfill(-180, -60)) == [-180, -120]
    assert await past.drain(await past.backfill(-150, None, reprocess="all")) == [-120, -60]


async def test_it_leaves_the_cadence_alone(past: Past) -> None:
    """A live execution of a backfill is no reason to skip, to block or to replace a fire; nor the other way round."""
    for overlap in ("queue_all", "cancel_running"):
        await add(past.database, overlap, overlap=overlap)
    scheduler = await scheduler_on(past.database)
    for name in ("past", "queue_all", "cancel_running"):
        await backfills.create(past.database, name, request(-60, 0), tenant=TENANT, by="test")
    await backfill_feeder.feed_all(past.database)
    assert len(await past.bench.claim(past.session, slots=10)) == 3
    await past.virtual.advance(seconds=60)
    await step(scheduler)
    for name in ("past", "queue_all", "cancel_running"):
        assert await ledger(past.database, name) == [(-60, "running", None), (60, "queued", None)]
    more = await past.backfill(-120, -60)
    await backfill_feeder.feed_all(past.database)
    assert await past.live(more) == [-120], "though a fire of the job is queued"


async def test_it_works_on_a_paused_job(past: Past) -> None:
    row = await refs.job_row(past.database, "past", tenant=TENANT)
    await jobs.pause(past.database, row.job_id, tenant=TENANT, reason="")
    assert await past.drain(await past.backfill(-120, 0)) == [-120, -60]
    assert (await job_views.get(past.database, "past", tenant=TENANT)).state == "paused"


# Instants 60 to 360 have: success, failure, skipped by overlap, cancelled, a live execution, nothing at all (missed).
REPROCESS = {"none": [180, 360], "failed": [120, 180, 240, 360], "all": [60, 120, 180, 240, 300, 360]}


@pytest.mark.parametrize("reprocess", ["none", "failed", "all"])
async def test_which_instants_are_executed(past: Past, reprocess: Any) -> None:
    scheduler = await scheduler_on(past.database)
    row = await refs.job_row(past.database, "past", tenant=TENANT)
    held: list[Any] = []

    async def fire() -> None:
        await past.virtual.advance(seconds=60)
        await step(scheduler)

    for outcome in ("succeeded", "failed"):
        await fire()
        await past.work(outcome)
    await past.bench.submit(row.job_id)
    held = await past.bench.claim(past.session)
    await fire()  # skipped: the manual one still runs
    await past.bench.end(held[0]["execution_id"], past.session, "succeeded")
    await fire()
    await past.work("cancelled")
    await fire()  # lives
    await jobs.pause(past.database, row.job_id, tenant=TENANT, reason="")
    await past.virtual.advance(seconds=90)
    wanted = REPROCESS[reprocess]
    plan = await backfills.plan(past.database, "past", request(30, 390, reprocess=reprocess), tenant=TENANT)
    assert [(found - START).total_seconds() for found in plan.page] == wanted
    assert (plan.instants, plan.left_out) == (len(wanted), 6 - len(wanted))
    assert (plan.first, plan.last) == (at(wanted[0]), at(wanted[-1]))
    backfill = await past.backfill(30, 390, reprocess=reprocess, concurrency=10)
    await backfill_feeder.feed_all(past.database)
    assert await past.live(backfill) == wanted
    found = await past.look(backfill)
    assert (found.made, found.left_out) == (len(wanted), 6 - len(wanted))


async def test_a_second_backfill_leaves_out_what_the_first_has_done(past: Past) -> None:
    first = await past.backfill(-300, 0, concurrency=10)
    await backfill_feeder.feed_all(past.database)
    await past.work("succeeded", slots=2)
    await past.work("failed", slots=10)
    await past.drain(first)
    assert await past.drain(await past.backfill(-300, 0)) == []
    await past.virtual.advance(seconds=1)
    assert await past.drain(await past.backfill(-300, 0, reprocess="failed")) == [-180, -120, -60]
    assert await past.drain(await past.backfill(-300, 0, reprocess="failed")) == [], "the latest execution counts"


async def test_start_and_end_of_the_job_bound_it(fresh: Database, virtual: VirtualClock) -> None:
    past = Past(fresh, virtual)
    begun = ScheduleSpec(every=60, aligned=True, start_at=at(-180).isoformat())
    await past.start(schedule=begun)
    assert await past.drain(await past.backfill()) == [-180, -120, -60]


# Crashes ---------------------------------------------------------------------------------------------

STEPS = [
    "lock_backfill",
    "backfill_live",
    "instant_outcomes",
    "insert_backfill_executions",
    "move_backfill",
    "end_backfill",
]


@pytest.mark.parametrize("crash_after", STEPS)
async def test_a_crash_neither_doubles_nor_loses_an_instant(
    past: Past, monkeypatch: pytest.MonkeyPatch, crash_after: str
) -> None:
    """The feeder dies right after one of its statements, again and again; another goes on from what was committed."""
    backfill = await past.backfill(concurrency=2)
    original, turns = getattr(rows, crash_after), 0

    async def crashing(*args: Any, **more: Any) -> Any:
        nonlocal turns
        turns += 1
        answer = await original(*args, **more)
        if turns % 2:
            raise Crash
        return answer

    monkeypatch.setattr(rows, crash_after, crashing)
    done: list[float] = []
    while await backfill_feeder.feed_all(past.database):
        done += await past.work(slots=10)
    assert turns >= 2, "the step was reached"
    assert done == TEN
    found = await past.look(backfill)
    assert (found.state, found.made, found.executions) == ("finished", 10, {"succeeded": 10})


@pytest.mark.fault
async def test_a_killed_connection_takes_its_half_written_step_along(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process or its server dies with executions inserted and the cursor not yet moved."""
    backfill = await past.backfill(concurrency=4)
    original = rows.move_backfill

    async def killing(connection: Any, **more: Any) -> None:
        pid = connection.get_server_pid()
        async with past.database.connection() as other:
            await other.execute("SELECT pg_terminate_backend($1, 5000)", pid)
        await original(connection, **more)

    with monkeypatch.context() as patch:
        patch.setattr(rows, "move_backfill", killing)
        await backfill_feeder.feed_all(past.database)
    assert await past.live(backfill) == [] and (await past.look(backfill)).made == 0
    assert await past.drain(backfill) == TEN


async def test_many_who_feed_at_once_make_each_instant_once(past: Past) -> None:
    backfill = await past.backfill(-3600, 0, concurrency=7)
    done: list[float] = []
    while (await past.look(backfill)).state == "running":
        await asyncio.gather(*[backfill_feeder.feed_all(past.database) for _ in range(4)])
        assert len(await past.live(backfill)) <= 7
        done += await past.work(slots=5)
    assert done == [float(s) for s in range(-3600, 0, 60)]


# Pause, cancel, delete -------------------------------------------------------------------------------


async def test_pausing_and_resuming(past: Past) -> None:
    backfill = await past.backfill(concurrency=2)
    await backfill_feeder.feed_all(past.database)
    await backfills.pause(past.database, backfill, tenant=TENANT, by="test")
    await backfills.pause(past.database, backfill, tenant=TENANT, by="test")
    assert await past.work(slots=10) == TEN[:2], "what lives goes on"
    assert await backfill_feeder.feed_all(past.database) == 0
    assert await past.live(backfill) == []
    await backfills.resume(past.database, backfill, tenant=TENANT, by="test")
    assert await past.drain(backfill) == TEN[2:]
    for verb in (backfills.pause, backfills.resume):
        with pytest.raises(Conflict, match="finished already"):
            await verb(past.database, backfill, tenant=TENANT, by="test")


async def test_cancelling_cancels_what_lives(past: Past) -> None:
    backfill = await past.backfill(concurrency=3)
    await backfill_feeder.feed_all(past.database)
    (running,) = await past.bench.claim(past.session)
    await backfills.cancel(past.database, backfill, tenant=TENANT, by="test")
    assert (await past.bench.look(running["execution_id"])).cancelling
    assert await past.bench.end(running["execution_id"], past.session, "cancelled")
    assert await backfill_feeder.feed_all(past.database) == 0
    found = await past.look(backfill)
    assert (found.state, found.executions, found.made) == ("cancelled", {"cancelled": 3}, 3)
    await backfills.cancel(past.database, backfill, tenant=TENANT, by="test")


async def test_deleting_the_job_ends_it(past: Past) -> None:
    backfill = await past.backfill(concurrency=2)
    await backfill_feeder.feed_all(past.database)
    row = await refs.job_row(past.database, "past", tenant=TENANT)
    await jobs.delete(past.database, row.job_id, tenant=TENANT, by="test")
    await backfill_feeder.feed_all(past.database)
    found = await past.look(backfill)
    assert (found.state, found.executions) == ("cancelled", {"cancelled": 2})


async def test_rescheduling_the_job_does_not_change_it(past: Past) -> None:
    backfill = await past.backfill(-180, 0, concurrency=1)
    await backfill_feeder.feed_all(past.database)
    row = await refs.job_row(past.database, "past", tenant=TENANT)
    await jobs.patch(past.database, row.job_id, {"schedule": {"every": 7}}, tenant=TENANT, by="test")
    assert await past.drain(backfill) == [-180, -120, -60]


async def test_the_list_is_newest_first_and_by_job(past: Past) -> None:
    await past.start("other")
    made = []
    for n in range(3):
        await past.virtual.advance(milliseconds=5)
        made.append(await past.backfill(-60 * (n + 1), 0))
    other = await backfills.create(past.database, "other", request(-60, 0), tenant=TENANT, by="test")
    page = await backfill_views.list_backfills(past.database, tenant=TENANT, job="past", limit=2)
    rest = await backfill_views.list_backfills(
        past.database, tenant=TENANT, job="past", limit=2, cursor=page.next_cursor
    )
    assert [b.backfill_id for b in (*page.items, *rest.items)] == made[::-1] and rest.next_cursor is None
    everything = await backfill_views.list_backfills(past.database, tenant=TENANT)
    assert {b.backfill_id for b in everything.items} == {*made, other}
    assert (await backfill_views.list_backfills(past.database, tenant=2)).items == []


# What is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "pointer", "words"),
    [
        (-60, 60, "/to", "is in the future"),
        (-60, -60, "/to", "must be after"),
        (-60, -120, "/to", "must be after"),
        (-50, -10, "/from", "no instant in this range"),
        (-86400 * 100, 0, "/from", "more than 100,000 instants"),
    ],
)
async def test_a_bad_range_is_refused(past: Past, start: float, end: float, pointer: str, words: str) -> None:
    for attempt in (
        backfills.plan(past.database, "past", request(start, end), tenant=TENANT),
        backfills.create(past.database, "past", request(start, end), tenant=TENANT, by="test"),
    ):
        with pytest.raises(Invalid, match=words) as refused:
            await attempt
        assert refused.value.problems[0].pointer == pointer
    assert (await backfill_views.list_backfills(past.database, tenant=TENANT)).items == []


async def test_a_job_without_a_schedule_has_nothing_to_fill_in(past: Past) -> None:
    await add(past.database, "on-demand", schedule=None)
    await add(past.database, "once", schedule=ScheduleSpec(at=at(600).isoformat()))
    for name in ("on-demand", "once"):
        with pytest.raises(Invalid, match="no recurring schedule"):
            await backfills.plan(past.database, name, request(-60, 0), tenant=TENANT)


async def test_another_tenant_sees_nothing_of_it(past: Past) -> None:
    backfill = await past.backfill()
    for attempt in (
        backfill_views.get(past.database, backfill, tenant=2),
        backfills.pause(past.database, backfill, tenant=2, by="test"),
        backfills.cancel(past.database, backfill, tenant=2, by="stranger"),
        backfills.plan(past.database, "past", request(-60, 0), tenant=2),
    ):
        with pytest.raises(NotFound):
            await attempt


async def test_the_doctor_finds_nothing_afterwards(past: Past) -> None:
    scheduler = await scheduler_on(past.database)
    backfill = await past.backfill(concurrency=2)
    for _ in range(3):
        await past.virtual.advance(seconds=60)
        await step(scheduler)
        await backfill_feeder.feed_all(past.database)
        await past.work(slots=2)
    await past.drain(backfill)
    async with past.database.connection() as connection:
        found = (await examine(connection)).findings
    # The watermarks of shards where nothing was due follow with the next renewal of a lease, half a minute long here.
    assert [f for f in found if not f.check.startswith("I2 ")] == []

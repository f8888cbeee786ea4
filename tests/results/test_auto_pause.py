"""A job that keeps failing is paused by the transaction that settles its last failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.events import Kind
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import jobs
from mainspring.results.batch import Report
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.policies import LONG
from tests.support.scheduling import add, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio


class Ear:
    """Stands where the announcer stands, and remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Kind, set[UUID]]] = []

    def announce(self, kind: Kind, executions: Iterable[UUID]) -> None:
        self.heard.append((kind, set(executions)))


class Fires:
    """A job that fires every minute, each fire ended as the test says."""

    def __init__(self, database: Database, virtual: VirtualClock, scheduler: Scheduler, session: UUID) -> None:
        self.bench = SettlingBench(database)
        self.ear = Ear()
        self.bench.settler._announcer = self.ear  # type: ignore[assignment]
        self.virtual, self.scheduler, self.session = virtual, scheduler, session

    async def fire(self) -> list[Any]:
        await self.virtual.advance(seconds=60)
        await step(self.scheduler)
        return await self.bench.claim(self.session, slots=10)

    async def end(self, *outcomes: str) -> UUID:
        execution: UUID | None = None
        for outcome in outcomes:
            (row,) = await self.fire()
            execution = row["execution_id"]
            assert await self.bench.end(row["execution_id"], self.session, outcome)
        assert execution is not None
        return execution


@pytest.fixture
async def fires(fresh: Database, virtual: VirtualClock) -> Fires:
    return Fires(fresh, virtual, await scheduler_on(fresh), await SettlingBench(fresh).session(LONG))


async def failing(database: Database, name: str = "failing", after: int = 3, **spec: Any) -> None:
    await add(database, name, pause_after_failures=after, retries=RetryPolicy(max=0), **spec)


async def test_the_last_failure_pauses_the_job(fresh: Database, fires: Fires) -> None:
    await failing(fresh)
    await fires.end("failed", "timed_out")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active"
    last = await fires.end("failed")
    found = await job_views.get(fresh, "failing", tenant=TENANT)
    assert (found.state, found.pause_reason) == ("paused", "the last 3 executions failed")
    assert ("paused", {last}) in fires.ear.heard
    assert await fires.fire() == [], "it fires no more"
    await jobs.resume(fresh, found.job_id, tenant=TENANT)
    await fires.end("failed", "failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active", "what was before does not count"
    await fires.end("failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "paused"


async def test_a_success_between_starts_the_count_anew(fresh: Database, fires: Fires) -> None:
    await failing(fresh)
    await fires.end("failed", "failed", "succeeded", "failed", "failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active"


async def test_what_was_cancelled_or_run_by_hand_does_not_count(fresh: Database, fires: Fires) -> None:
    await failing(fresh)
    await fires.end("failed", "cancelled", "failed")
    row = await refs.job_row(fresh, "failing", tenant=TENANT)
    for _ in range(3):
        await fires.bench.submit(row.job_id)
        (claimed,) = await fires.bench.claim(fires.session)
        await fires.bench.end(claimed["execution_id"], fires.session, "failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active"
    await fires.end("failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "paused"


async def test_a_retry_that_is_left_is_no_failure_yet(fresh: Database, fires: Fires) -> None:
    await add(fresh, "failing", pause_after_failures=1, retries=RetryPolicy(max=1, base="1s", jitter="none"))
    (row,) = await fires.fire()
    await fires.bench.end(row["execution_id"], fires.session, "failed")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active"
    await fires.virtual.advance(seconds=1)
    await fires.scheduler._promotion.promote(dict.fromkeys(fires.scheduler.shards, 0))
    (row,) = await fires.bench.claim(fires.session)
    await fires.bench.end(row["execution_id"], fires.session, "failed", attempt=2)
    found = await job_views.get(fresh, "failing", tenant=TENANT)
    assert (found.state, found.pause_reason) == ("paused", "the last execution failed")


async def test_what_nobody_decided_before_the_pause_is_on_record(fresh: Database, fires: Fires) -> None:
    await failing(fresh, after=1)
    (row,) = await fires.fire()
    await fires.virtual.advance(seconds=130)
    await fires.bench.end(row["execution_id"], fires.session, "failed")
    assert (await ledger(fresh, "failing"))[1:] == [(180, "skipped", "paused")]


async def test_an_edit_does_not_end_the_pause(fresh: Database, fires: Fires) -> None:
    await failing(fresh, after=1)
    await fires.end("failed")
    row = await refs.job_row(fresh, "failing", tenant=TENANT)
    await jobs.patch(fresh, row.job_id, {"description": "repaired?"}, tenant=TENANT, by="test")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "paused"
    await jobs.patch(fresh, row.job_id, {"paused": False}, tenant=TENANT, by="test")
    assert (await job_views.get(fresh, "failing", tenant=TENANT)).state == "active"


async def test_ticks_edits_and_failures_at_once_meet_in_no_circle(fresh: Database, fires: Fires) -> None:
    """Shard, job, execution: everyone takes them in this order, so nobody is given up by the database."""
    names = [f"failing-{n}" for n in range(6)]
    for name in names:
        await failing(fresh, name, after=2, overlap="cancel_running")
    ids = [(await refs.job_row(fresh, name, tenant=TENANT)).job_id for name in names]
    async with fresh.connection() as connection:
        before = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

    async def settle(rows: list[Any]) -> None:
        ended = [AttemptResult(r["execution_id"], r["attempt"], fires.session, "failed") for r in rows]
        await fires.bench.settler.settle(Report(fires.session, ended))

    for turn in range(12):
        rows = await fires.fire()
        await fires.virtual.advance(seconds=60)
        await asyncio.gather(
            *[settle(rows[n::3]) for n in range(3)],
            step(fires.scheduler),
            *[jobs.resume(fresh, job_id, tenant=TENANT, caught_up=turn % 2 == 0) for job_id in ids],
        )
    async with fresh.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        after = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert after == before

"""Executions that did not start in time, deadlines as jobs show them, and the loops that sleep until there is work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mainspring import ports
from mainspring.clock import millis
from mainspring.domain.retry import RetryPolicy
from mainspring.duties import service as duties
from mainspring.duties.deadlines import skip_overdue
from mainspring.duties.service import Duties
from mainspring.intake import jobs
from mainspring.intake.executions import Submission
from mainspring.store import deadlines, fires
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.policies import LONG
from tests.support.scheduling import add, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio


async def next_overdue_s(database: Database) -> float | None:
    async with database.connection() as connection:
        return await deadlines.next_overdue_s(connection)


async def test_what_does_not_start_in_time_is_skipped(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "prompt", start_by="20s")
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session = await bench.session(LONG)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await next_overdue_s(fresh) == 20
    await virtual.advance(seconds=19)
    assert await skip_overdue(fresh) == 0
    assert await next_overdue_s(fresh) == 1
    await virtual.advance(seconds=1)
    assert await bench.claim(session) == [], "though nobody has swept yet, it does not start any more"
    assert await skip_overdue(fresh) == 1
    assert await ledger(fresh, "prompt") == [(60, "skipped", "start_by")]
    await virtual.advance(seconds=40)
    await step(scheduler)
    (row,) = await bench.claim(session)
    await virtual.advance(seconds=30)
    assert await skip_overdue(fresh) == 0, "once it has started, it is no matter any more"
    assert await bench.end(row["execution_id"], session, "succeeded")


async def test_start_by_does_not_keep_a_retry(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "prompt", start_by="20s", retries=RetryPolicy(max=1, base="100s", jitter="none"))
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session = await bench.session(LONG)
    await virtual.advance(seconds=60)
    await step(scheduler)
    (row,) = await bench.claim(session)
    await bench.end(row["execution_id"], session, "failed")
    await virtual.advance(seconds=100)
    assert await skip_overdue(fresh) == 0
    async with fresh.connection() as connection:
        assert await fires.promote_waiting(connection, shards=list(range(64)), limit=10) == 1
    (again,) = await bench.claim(session)
    assert (again["execution_id"], again["attempt"]) == (row["execution_id"], 2)


async def test_start_by_counts_from_when_a_manual_execution_is_due(fresh: Database, virtual: VirtualClock) -> None:
    bench = SettlingBench(fresh)
    job_id = await bench.job(start_by="20s")
    later = Submission(TENANT, "test", job_id, START + timedelta(seconds=100), None, START - timedelta(days=1))
    execution = await bench.submitter.submit(later)
    await virtual.advance(seconds=110)
    assert await skip_overdue(fresh) == 0
    await virtual.advance(seconds=10)
    assert await skip_overdue(fresh) == 1
    assert (await bench.look(execution)).reason == "start_by"


async def test_skipping_lets_go_what_waited_behind_it(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "chained", overlap="queue_all", start_by="70s")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    assert [state for _, state, _ in await ledger(fresh, "chained")] == ["queued", "blocked"]
    await virtual.advance(seconds=10)
    assert await skip_overdue(fresh) == 1
    assert [state for _, state, _ in await ledger(fresh, "chained")] == ["skipped", "queued"]


async def test_an_installation_without_such_jobs_is_not_looked_at(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "plain")
    assert await next_overdue_s(fresh) is None
    await add(fresh, "prompt", start_by="5s")
    assert await next_overdue_s(fresh) == 5, "an execution made right after this look is overdue then"


# Deadlines of jobs -----------------------------------------------------------------------------------


async def judged(database: Database, name: str) -> dict[str, tuple[str, float | None]]:
    found = await job_views.get(database, name, tenant=TENANT)
    return {d.kind: (d.state, None if d.at is None else (d.at - START).total_seconds()) for d in found.deadlines}


async def missed(database: Database, virtual: VirtualClock) -> list[tuple[str, str]]:
    async with database.connection() as connection:
        found = await deadlines.missed(connection, tenant=TENANT, now_ms=millis(virtual.now))
    return sorted((row.name, judgement.kind) for row, judgement in found)


async def test_deadlines_hold_though_nothing_ever_starts(fresh: Database, virtual: VirtualClock) -> None:
    """No scheduler, no worker: the schedule alone says that something is missing."""
    await add(fresh, "watched", finish_by="30s", max_gap="10m")
    await add(fresh, "plain")
    assert await judged(fresh, "watched") == {"finish_by": ("ok", 90), "max_gap": ("ok", 600)}
    await virtual.advance(seconds=60)
    assert await judged(fresh, "watched") == {"finish_by": ("due", 90), "max_gap": ("ok", 600)}
    assert await missed(fresh, virtual) == []
    await virtual.advance(seconds=30)
    assert await judged(fresh, "watched") == {"finish_by": ("missed", 90), "max_gap": ("ok", 600)}
    assert await missed(fresh, virtual) == [("watched", "finish_by")]
    await virtual.advance(minutes=10)
    assert await judged(fresh, "watched") == {"finish_by": ("missed", 690), "max_gap": ("missed", 600)}
    assert await missed(fresh, virtual) == [("watched", "finish_by"), ("watched", "max_gap")]
    assert await judged(fresh, "plain") == {}


async def test_a_success_keeps_a_deadline_and_a_pause_lifts_it(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "watched", finish_by="30s", max_gap="2m", overlap="allow", retries=RetryPolicy(max=0))
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session = await bench.session(LONG)
    for outcome in ("succeeded", "failed"):
        await virtual.advance(seconds=60)
        await step(scheduler)
        (row,) = await bench.claim(session)
        await bench.end(row["execution_id"], session, outcome)
    assert await judged(fresh, "watched") == {"finish_by": ("due", 150), "max_gap": ("ok", 180)}
    await virtual.advance(seconds=70)
    assert await missed(fresh, virtual) == [("watched", "finish_by"), ("watched", "max_gap")]
    await step(scheduler)
    (row,) = await bench.claim(session)
    await bench.end(row["execution_id"], session, "succeeded")
    assert await judged(fresh, "watched") == {"finish_by": ("ok", 270), "max_gap": ("ok", 310)}
    await virtual.advance(minutes=5)
    assert len(await missed(fresh, virtual)) == 2
    row = await refs.job_row(fresh, "watched", tenant=TENANT)
    await jobs.pause(fresh, row.job_id, tenant=TENANT, reason="")
    assert await judged(fresh, "watched") == {} and await missed(fresh, virtual) == []
    await jobs.resume(fresh, row.job_id, tenant=TENANT)
    assert await missed(fresh, virtual) == [], "it is expected again from now on"


async def test_a_success_of_long_ago_is_found_for_a_gap(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "watched", max_gap="2m", overlap="allow", retries=RetryPolicy(max=0))
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session = await bench.session(LONG)
    for outcome in ("succeeded", "failed", "failed", "failed"):
        await virtual.advance(seconds=60)
        await step(scheduler)
        (row,) = await bench.claim(session)
        await bench.end(row["execution_id"], session, outcome)
    assert await judged(fresh, "watched") == {"max_gap": ("missed", 180)}


# The loops -------------------------------------------------------------------------------------------


class Wire:
    """A bus within this process."""

    def __init__(self) -> None:
        self.hearers: dict[str, list[Callable[[str], None]]] = {}

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        self.hearers.setdefault(channel, []).append(hear)

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        for hear in self.hearers.get(channel, ()):
            hear(payload)


async def test_an_idle_leader_looks_once_and_then_when_it_is_called(
    fresh: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    looked = asyncio.Event()

    def counting(name: str, original: Any) -> Any:
        async def look(*args: Any, **more: Any) -> Any:
            found = await original(*args, **more)
            looks.append(name)
            looked.set()
            return found

        return look

    for name in ("end_pauses", "skip_overdue", "feed_all"):
        monkeypatch.setattr(duties, name, counting(name, getattr(duties, name)))
    bus = Wire()
    service = Duties(fresh, bus, leads=lambda: True)

    async def until(count: int) -> None:
        async with asyncio.timeout(20):
            while len(looks) < count:
                looked.clear()
                await looked.wait()

    await service.start()
    try:
        await until(3)
        assert sorted(looks) == ["end_pauses", "feed_all", "skip_overdue"]
        bus.publish(ports.EVENTS, "[]")
        bus.publish(ports.SHARDS, "wait 12345")
        bus.publish(ports.SHARDS, "edit 7")
        await until(5)
        bus.publish(ports.BACKFILLS, "")
        await until(6)
        assert sorted(looks) == ["end_pauses"] * 2 + ["feed_all"] * 2 + ["skip_overdue"] * 2, "endings called nobody"
    finally:
        await service.stop()


async def test_who_does_not_lead_asks_the_database_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()
    seen = 0

    def leads() -> bool:
        nonlocal seen
        seen += 1
        if seen >= 3:
            asked.set()
        return False

    async def refuse(*_: Any) -> Any:
        raise AssertionError("it does not lead")

    for name in ("end_pauses", "skip_overdue", "feed_all"):
        monkeypatch.setattr(duties, name, refuse)
    service = Duties(database, Wire(), leads=leads)
    await service.start()
    async with asyncio.timeout(10):
        await asked.wait()
    await service.stop()

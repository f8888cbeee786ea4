"""The grid: every misfire policy with every overlap policy, while down, while paused, and with a slow job."""

from __future__ import annotations

import asyncio
import random
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.job import Misfire
from mainspring.intake import executions, jobs
from mainspring.results.rescue import rescue_orphans
from mainspring.store import overlaps
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import refs
from tests.support.policies import DOWN, LONG, MISFIRES, OVERLAPS, LedgerLine, skipped
from tests.support.scheduling import add, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench

# The execution of 60 starts at once and runs until 210; then whatever is released runs at once.
SLOW: dict[str, list[LedgerLine]] = {
    "skip": [(60, "succeeded", None), *skipped(120, 180, why="overlap"), (240, "queued", None)],
    "queue_one": [
        (60, "succeeded", None),
        (120, "succeeded", None),
        *skipped(180, why="overlap"),
        (240, "queued", None),
    ],
    "queue_all": [
        (60, "succeeded", None),
        (120, "succeeded", None),
        (180, "succeeded", None),
        (240, "queued", None),
    ],
    "cancel_running": [
        (60, "cancelled", "overlap"),
        (120, "cancelled", "overlap"),
        (180, "succeeded", None),
        (240, "queued", None),
    ],
    "allow": [
        (60, "succeeded", None),
        (120, "succeeded", None),
        (180, "succeeded", None),
        (240, "queued", None),
    ],
}


@pytest.mark.requirement(14)
@pytest.mark.parametrize(("misfire", "overlap"), list(product(MISFIRES, OVERLAPS)))
async def test_fires_missed_while_down_and_while_paused(
    fresh: Database, virtual: VirtualClock, misfire: Any, overlap: Any
) -> None:
    for name in ("down", "paused"):
        await add(fresh, name, misfire=Misfire(policy=misfire), overlap=overlap)
    paused = await refs.job_row(fresh, "paused", tenant=TENANT)
    await jobs.pause(fresh, paused.job_id, tenant=TENANT, reason="grid")
    await virtual.advance(seconds=200)
    await scheduler_on(fresh)
    assert await ledger(fresh, "down") == DOWN[misfire, overlap]
    assert await ledger(fresh, "paused") == [], "what a pause left out is not made up for"


@pytest.mark.parametrize(("misfire", "overlap"), list(product(MISFIRES, OVERLAPS)))
async def test_a_slow_job(fresh: Database, virtual: VirtualClock, misfire: Any, overlap: Any) -> None:
    """The execution of 60 runs until 210. Whatever the misfire policy: nothing was missed."""
    await add(fresh, "slow", misfire=Misfire(policy=misfire), overlap=overlap)
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    worker = OneSlot(bench, await bench.session(LONG))
    for _ in range(3):
        await virtual.advance(seconds=60)
        await step(scheduler)
        await worker.obey()
        await worker.take()
    await virtual.advance(seconds=30)
    await worker.finish_all()
    await virtual.advance(seconds=30)
    await step(scheduler)
    assert await ledger(fresh, "slow") == SLOW[overlap]


class OneSlot:
    """A worker with one slot: takes what there is, ends at once what it is asked to, the rest when told."""

    def __init__(self, bench: SettlingBench, session: UUID) -> None:
        self._bench = bench
        self._session = session
        self._running: Any = None

    async def take(self) -> None:
        if self._running is None:
            self._running = next(iter(await self._bench.claim(self._session)), None)

    async def end(self, outcome: str) -> None:
        row, self._running = self._running, None
        assert await self._bench.end(row["execution_id"], self._session, outcome, attempt=row["attempt"])

    async def obey(self) -> None:
        if self._running is not None and (await self._bench.look(self._running["execution_id"])).cancelling:
            await self.end("cancelled")
            await self.take()

    async def finish_all(self) -> None:
        while self._running is not None:
            await self.end("succeeded")
            await self.take()


@pytest.mark.parametrize("overlap", ["queue_one", "queue_all", "cancel_running"])
async def test_nothing_stays_blocked_behind_nothing(fresh: Database, virtual: VirtualClock, overlap: Any) -> None:
    """Ticks, settlings and cancellations of the same job at once; whoever is second sees what the first decided."""
    for n in range(8):
        await add(fresh, f"chained-{n}", overlap=overlap)
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    session, rng = await bench.session(LONG), random.Random(11)

    async def work() -> None:
        rows = await bench.claim(session, slots=8)
        await asyncio.gather(
            *[
                bench.end(row["execution_id"], session, rng.choice(["succeeded", "cancelled"]), attempt=row["attempt"])
                for row in rows
            ]
        )

    for _ in range(25):
        await virtual.advance(seconds=60)
        await asyncio.gather(work(), step(scheduler), work(), work())
    for _ in range(100):
        await work()
    assert await bench.live() == {}, "no execution is blocked while nothing of its job lives"


async def test_cancelling_what_is_ahead_lets_the_next_one_go(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "chained", overlap="queue_all")
    scheduler = await scheduler_on(fresh)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    first = (await execution_views.list_executions(fresh, tenant=TENANT, job="chained")).items[-1]
    await executions.cancel(fresh, first.execution_id, tenant=TENANT, by="test", reason="")
    assert [state for _, state, _ in await ledger(fresh, "chained")] == ["cancelled", "queued"]


async def test_the_sweep_releases_what_a_dead_server_did_not(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "chained", overlap="queue_all")
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    for _ in range(2):
        await virtual.advance(seconds=60)
        await step(scheduler)
    async with fresh.connection() as connection:  # as if the process had died right after settling
        await connection.execute("DELETE FROM executions WHERE state = 'queued'")
        blocked = await overlaps.blocked_jobs(connection, limit=10)
    assert len(blocked) == 1
    await bench.settler.release(blocked)
    assert [state for _, state, _ in await ledger(fresh, "chained")] == ["queued"]
    assert await rescue_orphans(fresh, bench.settler) == 0


@pytest.mark.parametrize(
    ("window", "most", "expected"), [("100s", 100, [120, 180]), ("80s", 100, [120, 180]), ("24h", 1, [180])]
)
async def test_misfires_are_made_up_for_within_window_and_number(
    fresh: Database, virtual: VirtualClock, window: str, most: int, expected: list[int]
) -> None:
    await add(fresh, "missed", misfire=Misfire(policy="all", window=window, max=most), overlap="allow")
    await virtual.advance(seconds=200)
    await scheduler_on(fresh)
    assert [at for at, state, _ in await ledger(fresh, "missed") if state == "queued"] == expected


async def test_a_delayed_submission_is_no_reason_to_skip(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "minutely", overlap="skip")
    scheduler, bench = await scheduler_on(fresh), SettlingBench(fresh)
    row = await refs.job_row(fresh, "minutely", tenant=TENANT)
    later = executions.Submission(TENANT, "test", row.job_id, START.replace(hour=20))
    await bench.submitter.submit(later)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert (60, "queued", None) in await ledger(fresh, "minutely")

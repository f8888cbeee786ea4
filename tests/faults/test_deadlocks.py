"""Deadlock hunt: random operations on few jobs at once. PostgreSQL counts deadlocks; there must be none.

Every transaction locks in one order: tenant, shards, jobs by id, needs, executions by id, runs. A deadlock is rolled
back and repeated, so users see little of it, but each costs a second, and an unordered pair of locks is a mistake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.errors import MainspringError
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.workflow_timers import WorkflowTimers
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import dependencies, executions, jobs
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission
from mainspring.results.rescue import rescue_orphans
from mainspring.scheduler.service import Scheduler
from mainspring.store import doctor
from mainspring.store.db import CONFLICTS, Database
from tests.conftest import clone
from tests.support.figures import record
from tests.support.runs import RunBench
from tests.support.seeds import SEED
from tests.support.settling import TENANT, SettlingBench
from tests.support.silent_bus import SilentBus

SECONDS = float(os.environ.get("RACE_SECONDS", "12"))
WORKERS = 10
JOBS = 6
OVERLAPS = ("allow", "queue_one", "queue_all", "cancel_running", "skip")
REFUSED: tuple[type[BaseException], ...] = (MainspringError, asyncpg.PostgresError)
STEPS: dict[str, Any] = {"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["a"]}, "d": {"needs": ["b", "c"]}}


class Hunt:
    """Operations on the same few jobs; each is a coroutine that a random generator chooses."""

    def __init__(self, database: Database, rng: random.Random) -> None:
        self.database = database
        self.rng = rng
        self.bench = SettlingBench(database)
        self.runs = RunBench(database)
        self.scheduler = Scheduler(database, SilentBus(), lease_s=600)
        self.timers = WorkflowTimers(database)
        self.ids: list[UUID] = []
        self.done: Counter[str] = Counter()
        self.conflicts: list[str] = []
        self._deciding = asyncio.Lock()

    async def begin(self) -> None:
        for n in range(JOBS):
            self.ids.append(await self.create(n))
        await self.runs.apply("flow", STEPS)

    async def create(self, n: int) -> UUID:
        when = ScheduleSpec(every=1, aligned=True) if n % 2 else None
        overlap: Any = self.rng.choice(OVERLAPS)
        pausing = self.rng.choice([None, 2])
        spec = JobSpec(name=f"job-{n}", task=NoopTask(), schedule=when, overlap=overlap, pause_after_failures=pausing)
        return await jobs.create(self.database, spec, tenant=TENANT, by="test")

    async def replace(self) -> None:
        """Delete a job that others may need, and create another of its name."""
        n = self.rng.randrange(JOBS)
        await jobs.delete(self.database, self.ids[n], tenant=TENANT, by="test", detach=True)
        self.ids[n] = await self.create(n)

    @property
    def operations(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            self.tick, self.submit, self.work, self.work, self.cancel, self.edit, self.pause, self.resume, self.need,
            self.unneed, self.force_complete, self.sweep, self.rescue, self.start_run, self.meddle,
        ]  # fmt: skip

    def name(self) -> str:
        return f"job-{self.rng.randrange(JOBS)}"

    def job(self) -> UUID:
        return self.rng.choice(self.ids)

    async def tick(self) -> None:
        async with self._deciding:
            await self.scheduler.step()

    async def submit(self) -> None:
        await self.bench.submitter.submit(Submission(TENANT, "test", self.job()))

    async def work(self) -> None:
        session = await self.bench.session(600)
        rows = await self.bench.claim(session, slots=8)
        for row in rows:
            outcome = self.rng.choice(["succeeded", "succeeded", "failed", "preempted"])
            with contextlib.suppress(*REFUSED):
                await self.bench.end(row["execution_id"], session, outcome, attempt=row["attempt"])
        if rows and self.rng.random() < 0.2:
            await self.bench.end_session(session)

    async def cancel(self) -> None:
        async with self.database.connection() as connection:
            rows = await connection.fetch("SELECT execution_id FROM executions ORDER BY random() LIMIT 1")
        for row in rows:
            await executions.cancel(self.database, row["execution_id"], tenant=TENANT, by="test", reason="")

    async def edit(self) -> None:
        changes = {"overlap": self.rng.choice(OVERLAPS), "priority": self.rng.randrange(10)}
        await jobs.patch(self.database, self.job(), changes, tenant=TENANT, by="test")

    async def pause(self) -> None:
        await jobs.pause(self.database, self.job(), tenant=TENANT, reason="test")

    async def resume(self) -> None:
        await jobs.resume(self.database, self.job(), tenant=TENANT, caught_up=self.rng.random() < 0.5)

    async def need(self) -> None:
        need = wire.NewDependency(job=self.name())
        await dependencies.add(self.database, self.name(), need, tenant=TENANT, by="test")

    async def unneed(self) -> None:
        await dependencies.remove(self.database, self.name(), self.name(), tenant=TENANT, by="test")

    async def force_complete(self) -> None:
        freed_as = self.rng.choice(["forced", "skipped"])
        await dependencies.free(self.database, self.name(), "so", freed_as=freed_as, tenant=TENANT, by="test")

    async def sweep(self) -> None:
        await dependencies.execute_ready(self.database)
        await dependencies.release_waiting(self.database)
        await self.timers.run_due()
        await self.bench.settler.release(self.ids)

    async def rescue(self) -> None:
        await rescue_orphans(self.database, self.bench.settler)

    async def start_run(self) -> None:
        await self.runs.start("flow")

    async def meddle(self) -> None:
        async with self.database.connection() as connection:
            rows = await connection.fetch("SELECT run_id FROM runs WHERE finished_at IS NULL ORDER BY random() LIMIT 1")
        for row in rows:
            run, step = row["run_id"], self.rng.choice(list(STEPS))
            if self.rng.random() < 0.3:
                await run_actions.cancel(self.runs.runs, run, tenant=TENANT, by="test")
            else:
                await run_actions.skip(self.runs.runs, run, step, "so", tenant=TENANT, by="test")

    async def hunt(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            operation = self.replace if self.rng.random() < 0.01 else self.rng.choice(self.operations)
            name = getattr(operation, "__name__", "?")
            try:
                await operation()
                self.done[name] += 1
            except CONFLICTS as error:
                self.conflicts.append(f"{name}: {error!r}")
            except REFUSED:
                self.done[f"{name} refused"] += 1


@pytest.mark.fault("F25")
async def test_random_operations_at_once_meet_in_no_circle(postgres: EmbeddedServer) -> None:
    url = await clone(postgres)
    async with Database(url, size=WORKERS + 4) as database:
        hunt = Hunt(database, random.Random(SEED))
        await hunt.begin()
        end = asyncio.get_running_loop().time() + SECONDS
        await asyncio.gather(*[hunt.hunt(end) for _ in range(WORKERS)])
        await settle_all(hunt)
        async with database.connection() as connection:
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            deadlocks = await connection.fetchval(
                "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            )
        found = await findings(database)
    record("deadlock hunt", deadlocks=deadlocks, seconds=SECONDS, operations=hunt.done.total())
    if deadlocks:
        print(log_of(postgres))
    assert deadlocks == 0, hunt.conflicts
    assert found == []
    assert len([name for name in hunt.done if not name.endswith("refused")]) >= 12, "most operations were possible"


async def settle_all(hunt: Hunt) -> None:
    """Finish what is under way, so that invariants of a quiet system hold."""
    async with asyncio.timeout(60):
        await hunt.sweep()
        await hunt.rescue()


COUNTED = ("I1 ", "I4 ", "I6 ", "I9 ", "I13 ", "I14 ", "I21 ", "I15 ", "I20 ")
"""Invariants that hold at any time, also while no server runs."""


async def findings(database: Database) -> list[wire.Finding]:
    async with database.connection() as connection:
        return [f for f in (await doctor.examine(connection)).findings if f.check.startswith(COUNTED)]


def log_of(server: EmbeddedServer) -> str:
    """What the server has written about deadlocks: the statements of both sides."""
    text = server.log.read_text(errors="replace")
    return "\n\n".join(part[:2500] for part in text.split("deadlock detected")[1:])

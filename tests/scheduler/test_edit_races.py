"""A job is created, edited, paused, resumed or deleted in the very moment its instant is decided.

Two schedulers and several writers meet at each second of a virtual clock that moves on by milliseconds meanwhile.
Every instant must be decided exactly as the writers' answers said: once while the job was active on that schedule,
never otherwise, and with the version that was in force when it was decided.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mainspring.domain.job import JobSpec, Misfire, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.store.jobs import JobRow
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import jobs as job_views
from mainspring.views import refs
from tests.support.fire_checker import multiples
from tests.support.scheduling import TENANT, step
from tests.support.seeds import SEED
from tests.support.silent_bus import SilentBus

SECONDS = float(os.environ.get("RACE_SECONDS", "12"))
JOBS = 24
WRITERS = 4
MS = timedelta(milliseconds=1)


@dataclass
class Told:
    """What the answers to the writers of one job said."""

    every_s: int
    since: datetime | None
    windows: list[tuple[int, datetime, datetime]] = field(default_factory=list)
    versions: list[tuple[datetime, int]] = field(default_factory=list)
    promises: list[tuple[datetime, int | None]] = field(default_factory=list)
    pauses: list[tuple[int, datetime, datetime]] = field(default_factory=list)
    paused_since: datetime | None = None
    active_from: datetime | None = None
    deleted: bool = False

    def close(self, at: datetime) -> None:
        """Active on its schedule until then."""
        if self.since is not None:
            self.windows.append((self.every_s, self.since, at))
        self.since = None

    def wanted(self, upto: datetime) -> set[int]:
        open_window = [] if self.since is None else [(self.every_s, self.since, upto)]
        return set[int]().union(*[multiples(*window) for window in [*self.windows, *open_window]])

    def account(self, upto: datetime) -> None:
        """What came due during the pause until then is on record as skipped."""
        if self.paused_since is not None:
            self.pauses.append((self.every_s, self.paused_since, upto))
            self.paused_since = upto

    def on_record(self, upto: datetime) -> set[int]:
        return self.wanted(upto).union(*[multiples(*window) for window in self.pauses])

    def promise(self, row: JobRow, next_fire_at: datetime | None) -> None:
        """An answer tells the next fire; it holds if the job is not touched before."""
        at = row.updated_at if row.active_from == self.active_from else row.active_from
        self.active_from = row.active_from
        self.promises.append((at, None if next_fire_at is None else round(next_fire_at.timestamp())))

    def kept(self, end: datetime) -> set[int]:
        """The promised instants that came before the next edit."""
        untils = [at.timestamp() for at, _ in self.promises[1:]] + [end.timestamp()]
        pairs = zip(self.promises, untils, strict=True)
        return {at_s for (_, at_s), until_s in pairs if at_s is not None and at_s < until_s}

    def version_at(self, at: datetime) -> int:
        return self.versions[bisect_right(self.versions, (at, 1 << 30)) - 1][1]


class Writers:
    """Random edits of random jobs, each followed by what an API would answer with."""

    def __init__(self, database: Database, seed: int) -> None:
        self.told: dict[UUID, Told] = {}
        self.tries: Counter[str] = Counter()
        self._database = database
        self._random = random.Random(seed)
        self._busy: set[UUID] = set()

    async def write(self) -> None:
        for _ in range(self._random.randrange(12)):
            await asyncio.sleep(0)
        idle = [job for job, told in self.told.items() if job not in self._busy and not told.deleted]
        if len(idle) < JOBS // 2 or self._random.random() < 0.05:
            return await self._create()
        job_id = self._random.choice(idle)
        self._busy.add(job_id)
        try:
            await self._change(job_id, self.told[job_id])
        finally:
            self._busy.discard(job_id)

    async def _create(self) -> None:
        self.tries["create"] += 1
        every_s = self._random.choice([1, 2])
        spec = JobSpec(
            name=f"job-{len(self.told)}-{self._random.random()}",
            task=NoopTask(),
            overlap="allow",
            misfire=Misfire(policy="all"),
            schedule=ScheduleSpec(every=every_s, aligned=True),
        )
        job_id = await jobs.create(self._database, spec, tenant=TENANT, by="test")
        told = Told(every_s, None)
        row = await self._answer(job_id, told)
        told.since = row.active_from
        told.versions.append((row.active_from, row.version))
        self.told[job_id] = told

    async def _change(self, job_id: UUID, told: Told) -> None:
        what = self._random.choice(["pause", "resume", "edit", "reschedule", "reschedule", "delete"])
        if (what == "resume") is (told.since is not None) or (what == "delete" and self._random.random() < 0.7):
            what = self._random.choice(["edit", "reschedule"])
        self.tries[what] += 1
        match what:
            case "pause":
                await jobs.pause(self._database, job_id, tenant=TENANT, reason="")
                row = await self._answer(job_id, told)
                assert row.paused_at is not None
                told.close(row.paused_at)
                told.paused_since = row.paused_at
            case "resume":
                await jobs.resume(self._database, job_id, tenant=TENANT)
                told.since = (await self._answer(job_id, told)).active_from
                told.account(told.since)
                told.paused_since = None
            case "delete":
                await jobs.delete(self._database, job_id, tenant=TENANT, by="test")
                row = await self._answer(job_id, told)
                assert row.deleted_at is not None
                told.close(row.deleted_at)
                told.account(row.deleted_at)
                told.deleted = True
            case "edit":
                change = {"priority": self._random.randrange(10)}
                await jobs.patch(self._database, job_id, change, tenant=TENANT, by="test")
                row = await self._answer(job_id, told)
                told.versions.append((row.updated_at, row.version))
            case _:
                new = {"schedule": {"every": 3 - told.every_s, "aligned": True}}
                await jobs.patch(self._database, job_id, new, tenant=TENANT, by="test")
                row = await self._answer(job_id, told)
                active = told.since is not None
                told.close(row.active_from)
                told.account(row.active_from)
                told.every_s, told.since = 3 - told.every_s, row.active_from if active else None
                told.versions.append((row.updated_at, row.version))

    async def _answer(self, job_id: UUID, told: Told) -> JobRow:
        """The job as the API shows it after the edit."""
        answer = await job_views.get(self._database, str(job_id), tenant=TENANT)
        row = await refs.job_row(self._database, str(job_id), tenant=TENANT)
        assert row.version == answer.version, "nobody else edits it"
        told.promise(row, answer.next_fire_at)
        return row


async def meet(writers: Writers, schedulers: list[Scheduler], clock: VirtualClock, at: datetime) -> None:
    """Everybody at once, while the clock moves over the instant."""
    over = asyncio.Event()

    async def move() -> None:
        for n in range(-2, 4):
            await clock.set(at + n * MS)
        await asyncio.gather(*writing)
        over.set()

    async def keep_deciding(scheduler: Scheduler) -> None:
        while not over.is_set():
            await step(scheduler)

    await clock.set(at - 3 * MS)
    writing = [asyncio.create_task(writers.write()) for _ in range(WRITERS) for _ in range(2)]
    await asyncio.gather(move(), *map(keep_deciding, schedulers))


@pytest.mark.fault
async def test_every_instant_is_decided_as_the_writers_were_told(fresh: Database, virtual: VirtualClock) -> None:
    writers = Writers(fresh, SEED)
    async with Database(fresh.dsn, size=4) as one, Database(fresh.dsn, size=4) as two:
        schedulers = [Scheduler(database, SilentBus(), lease_s=30) for database in (one, two)]
        for scheduler in [*schedulers, *schedulers]:
            await step(scheduler)
        while len(writers.told) < JOBS:
            await writers.write()
        loop = asyncio.get_running_loop()
        begun, seconds = loop.time(), 0
        while loop.time() - begun < SECONDS:
            seconds += 1
            await meet(writers, schedulers, virtual, START + timedelta(seconds=seconds))
            if seconds % 10 == 0:  # and now and then somebody leaves, and somebody else comes
                leaver = schedulers.pop(0)
                await leaver.drain()
                schedulers.append(Scheduler(one if seconds % 20 else two, SilentBus(), lease_s=30))
        end = START + timedelta(seconds=seconds + 5)
        await virtual.set(end)
        for scheduler in [*schedulers, *schedulers]:
            await step(scheduler)
    await compare(fresh, writers, end)
    print(json.dumps({"race": dict(writers.tries), "tries": writers.tries.total(), "instants": seconds, "seed": SEED}))
    assert writers.tries.total() > 10 * SECONDS


async def compare(database: Database, writers: Writers, end: datetime) -> None:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT job_id, version, state, fire_at, queued_at, fires FROM all_executions")
    found: dict[UUID, Counter[int]] = {job: Counter() for job in writers.told}
    wanted = {job: told.on_record(end) for job, told in writers.told.items()}
    for row in rows:
        job, told, at_s = row["job_id"], writers.told[row["job_id"]], round(row["fire_at"].timestamp())
        # A range says its end and its number; several at once have come due only if all were wanted.
        instants = [at_s] if row["fires"] == 1 else sorted(w for w in wanted[job] if w <= at_s)[-row["fires"] :]
        found[job].update(instants)
        if row["queued_at"] is not None:
            # The time of the decision is from before it waited for the shard's row, so a newer version may be in force.
            assert row["version"] >= told.version_at(row["queued_at"] - MS), (dict(row), told)
    for job, told in writers.told.items():
        assert set(found[job]) == wanted[job], (job, sorted(wanted[job] ^ set(found[job])), told)
        assert max(found[job].values(), default=1) == 1, (job, found[job])
        assert told.kept(end) <= set(found[job]), (job, told.kept(end) - set(found[job]), told)

"""The scheduler: owns shards, sleeps until something is due, and decides it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from uuid import UUID, uuid4

import structlog

from mainspring import ports
from mainspring.clock import DatabaseClock
from mainspring.scheduler import gate
from mainspring.scheduler.book import Book, Group, bits
from mainspring.scheduler.tick import Holding, Ticked, tick
from mainspring.service import Loops
from mainspring.store import fires, schedules, shards
from mainspring.store.db import AWAY, Database, database_now_ms
from mainspring.telemetry import metrics

log = structlog.get_logger()

LEASE_S = 5.0
RENEW_S = 1.5
CHUNK_JOBS = 10_000
"""A herd is cut by shard so that one transaction makes about this many executions."""
PARALLEL_CHUNKS = 2
PROMOTE_BATCH = 500
LEADER_SHARD = 0


class Scheduler:
    """One scheduler process. Any number may live at once; the shard rows say who decides what."""

    def __init__(self, database: Database, bus: ports.Bus, *, lease_s: float = LEASE_S) -> None:
        self.owner: UUID = uuid4()
        self._database = database
        self._lease_s = lease_s
        self._clock = DatabaseClock()
        self._book = Book(0)
        self._holdings: dict[int, Holding] = {}
        self._taken: list[shards.Shard] = []
        self._lost: set[int] = set()
        self._edited: set[int] = set()
        self._waiting_ms: int | None = None
        self._look_for_waiting = True
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._loops = Loops("scheduler")
        bus.subscribe(ports.SHARDS, self._hear, on_gap=self._gap)

    @property
    def clock(self) -> DatabaseClock:
        return self._clock

    @property
    def shards(self) -> list[int]:
        return sorted(self._holdings)

    def leads(self) -> bool:
        """Whether this process has the singleton duties: they go with one shard."""
        return LEADER_SHARD in self._holdings

    async def start(self) -> None:
        await self._measure_clock()
        self._book = Book(int(self._clock.now_ms()))
        self._loops.forever("lease", self._lease_step, backoff_s=0.25)
        self._loops.forever("tick", self._tick_step, backoff_s=0.1)

    async def ready(self) -> None:
        await self._ready.wait()

    async def drain(self) -> None:
        """Hands the shards over: a peer may take them at once."""
        await self._loops.stop()
        try:
            async with self._database.connection() as connection:
                await shards.release_shards(connection, owner=self.owner)
        except AWAY as error:
            log.warning("could not hand over the shards; a peer takes them when the lease ends", error=str(error))
        self._holdings.clear()

    async def stop(self) -> None:
        await self._loops.stop()

    # Owning: the lease loop asks and tells; only the tick loop changes what is held ------------------

    async def _lease_step(self) -> None:
        await self.lease()
        if not self._taken:
            self._ready.set()  # nothing to take: others own it all, and this one stands by
        metrics.SCHEDULER_IS_LEADER.set(self.leads())
        metrics.WHEEL_ENTRIES.set(len(self._book))
        metrics.CLOCK_SKEW.set(self._clock.skew_s())
        await asyncio.sleep(RENEW_S)

    async def lease(self) -> None:
        """Renews what is ours, takes what is nobody's, and measures the clock."""
        await self._measure_clock()
        async with self._database.connection() as connection:
            kept = await shards.renew_shards(connection, owner=self.owner, lease_s=self._lease_s)
            for shard, holding in self._holdings.items():
                epoch, changes = kept.get(shard, (None, 0))
                if epoch != holding.epoch:
                    self._lost.add(shard)
                elif changes > holding.loaded:
                    self._edited.add(shard)
            self._taken += await shards.acquire_shards(connection, owner=self.owner, lease_s=self._lease_s)
        if self._edited or self._lost or self._taken:
            self._wake.set()

    async def _take_in(self) -> None:
        """Builds the wheel for newly taken shards and decides what nobody did: exactly (watermark, now]."""
        taken, self._taken = {s.shard: s for s in self._taken}, []
        try:
            self._drop(set(taken))
            # What `changes` said before the rows were read counts as loaded: a later edit is read twice, never missed.
            self._holdings |= {s.shard: Holding(s.epoch, s.changes) for s in taken.values()}
            watermarks = {s.shard: s.watermark_ms for s in taken.values()}
            now_ms = int(self._clock.now_ms())
            groups: list[Group] = []
            async with self._database.connection() as connection:
                async for rows in schedules.shard_schedules(connection, shards=list(taken)):
                    groups += self._book.learn(rows, watermarks, upto_ms=now_ms)
            await self._tick_all(groups, set(taken), now_ms, only=set(taken))
        except BaseException:
            self._drop(set(taken))
            self._taken += taken.values()
            raise
        self._look_for_waiting = True
        log.info("took shards", shards=len(taken), schedules=len(self._book))

    def _drop(self, lost: set[int]) -> None:
        held = lost & self._holdings.keys()
        for shard in held:
            del self._holdings[shard]
        self._book.forget_shards(sum(1 << s for s in held))

    async def _measure_clock(self) -> None:
        async with self._database.connection() as connection:
            before = self._clock.monotonic()
            now_ms = await database_now_ms(connection)
            self._clock.observe(now_ms, before, self._clock.monotonic())

    # Deciding ----------------------------------------------------------------------------------------

    async def _tick_step(self) -> None:
        await self._sleep()
        await self.decide()

    async def decide(self) -> None:
        """Everything that is due now: shards lost and taken, waiting executions, fires."""
        if self._lost:
            log.warning("lost shards", shards=sorted(self._lost))
            self._drop(self._lost)
            self._lost = set()
        if self._taken:
            await self._take_in()
            self._ready.set()
        now_ms = int(self._clock.now_ms())
        if self._look_for_waiting or (self._waiting_ms is not None and self._waiting_ms <= now_ms):
            await self._promote()
        groups = self._book.due(now_ms)
        edited, self._edited = self._edited & self._holdings.keys(), set()
        if not groups and not edited:
            return
        try:
            self._book.plan_after(groups, now_ms)
            await self._tick_all(groups, edited, now_ms)
        except BaseException:
            self._book.put_back(groups)
            self._edited |= edited
            raise

    async def _tick_all(
        self, groups: list[Group], edited: set[int], now_ms: int, *, only: set[int] | None = None
    ) -> None:
        """Cuts a herd into transactions by shard. A shard whose transaction fails is simply decided again."""
        started = self._clock.monotonic()
        touched = 0
        for group in groups:
            touched |= group.shards
        wanted = sorted({s for s in bits(touched) if s in self._holdings and (only is None or s in only)} | edited)
        size = max(1, round(len(wanted) * CHUNK_JOBS / max(1, self._book.jobs_of(groups))))
        chunks = [wanted[start : start + size] for start in range(0, len(wanted), size)]

        async def decide_chunks() -> None:
            while chunks:
                ticked = await tick(
                    self._database, self._book, owner=self.owner, holdings=self._holdings, wanted=chunks.pop(),
                    groups=groups, until_ms=now_ms,
                )  # fmt: skip
                self._drop(ticked.lost)
                self._book.put_back(ticked.undecided)
                self._hear_wait(ticked.wait_ms)
                self._count(ticked, groups)

        # Chunks share no shard, so PostgreSQL may work on several at once.
        try:
            async with asyncio.TaskGroup() as together:
                for _ in range(min(PARALLEL_CHUNKS, len(chunks))):
                    together.create_task(decide_chunks())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        metrics.TICK_SECONDS.observe(self._clock.monotonic() - started)

    def _count(self, ticked: Ticked, groups: Sequence[Group]) -> None:
        metrics.JOBS_SCHEDULED.inc(ticked.queued)
        for reason, n in ticked.skipped.items():
            metrics.FIRES_SKIPPED.labels(reason).inc(n)
        if ticked.queued and groups:
            late_s = (ticked.now_ms - min(g.fires[-1] for g in groups)) / 1000
            metrics.SCHEDULING_LATENCY.observe(max(0.0, late_s))

    async def _promote(self) -> None:
        self._look_for_waiting = False
        mine = self.shards
        try:
            async with self._database.hot() as connection:
                while await fires.promote_waiting(connection, shards=mine, limit=PROMOTE_BATCH):
                    pass
                self._waiting_ms = None  # a NOTIFY that comes while we ask must not be overwritten
                due_ms = await fires.next_waiting_ms(connection, shards=mine)
            if due_ms is not None and due_ms <= self._clock.now_ms():  # left for the gate: its tenant has blackouts
                await gate.let_through(self._database, shards=mine)
                async with self._database.hot() as connection:
                    due_ms = await fires.next_waiting_ms(connection, shards=mine)
            self._hear_wait(due_ms)
        except BaseException:
            self._look_for_waiting = True
            raise

    async def _sleep(self) -> None:
        """Until the next entry, the next waiting execution, or a call."""
        if self._look_for_waiting or self._edited or self._taken or self._lost:
            return
        wakes = [at for at in (self._book.wheel.next_wake(), self._waiting_ms) if at is not None]
        wait_s = max(0.0, (min(wakes) - self._clock.now_ms()) / 1000) if wakes else None
        if wait_s == 0.0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)
        self._wake.clear()

    def _hear(self, payload: str) -> None:
        what, _, value = payload.partition(" ")
        if what == "edit":
            self._edited.add(int(value))
        else:
            self._hear_wait(int(value))
        self._wake.set()

    def _hear_wait(self, due_ms: int | None) -> None:
        if due_ms is not None and (self._waiting_ms is None or due_ms < self._waiting_ms):
            self._waiting_ms = due_ms

    def _gap(self) -> None:
        self._edited |= self._holdings.keys()
        self._look_for_waiting = True
        self._wake.set()

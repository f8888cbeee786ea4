"""The scheduler: owns shards, sleeps until something is due, and decides it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.clock import DatabaseClock
from mainspring.scheduler import gate
from mainspring.scheduler.book import Book, Group, bits
from mainspring.scheduler.leases import Leases
from mainspring.scheduler.tick import Holding, Ticked, tick
from mainspring.service import Loops, Service
from mainspring.store import fires, schedules, shards
from mainspring.store.db import AWAY, Database
from mainspring.store.schedules import ShardSchedule
from mainspring.store.shards import Decided, Shard, View
from mainspring.telemetry import metrics

log = structlog.get_logger()

LEASE_S = 5.0
BEAT_S = 1.0
"""Or a fifth of the lease, if that is less."""
RETRY_S = 0.0625
"""Doubles up to a second: when the database is back, nobody sleeps much longer."""
HANDOVER_S = 2.0
"""So long a drain waits for the transaction under way, before it is rolled back."""
COUNT_S = 600.0
CHUNK_JOBS = 2_500
"""A herd is cut by shard so that one transaction makes about this many executions."""
PARALLEL_CHUNKS = 2
ARRIVAL_ROWS = 10_000
MOST_ARRIVALS = 3
"""So many portions of new schedules may wait for the wheel: a million at once would double the memory."""
PROMOTE_BATCH = 500
LEADER_SHARD = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """Shards that have become ours, with what they bring for the wheel. The rows are younger than `changes`."""

    shards: dict[int, Shard]
    rows: list[ShardSchedule]


class Scheduler(Service):
    """One scheduler process. Any number may live at once; the shard rows say who decides what."""

    def __init__(
        self, database: Database, bus: ports.Bus, *, lease_s: float = LEASE_S, name: str | None = None
    ) -> None:
        self._database = database
        self._bus = bus
        self._clock = DatabaseClock()
        self._leases = Leases(database, self._clock, name=name, lease_s=lease_s)
        self._beat_s = min(BEAT_S, lease_s / 5)
        self._book = Book(0)
        self._holdings: dict[int, Holding] = {}
        self._decided = Decided(0, ())
        self._arrivals: list[Arrival] = []
        self._arriving: dict[int, int] = {}
        self._ticking = False
        self._joined = False
        self._room = asyncio.Event()
        self._leaving: dict[int, UUID] = {}
        self._lost: dict[int, int] = {}
        self._edited: set[int] = set()
        self._waiting_ms: int | None = None
        self._look_for_waiting = True
        self._counted = float("-inf")
        self._deciding = asyncio.Lock()
        self._wake = asyncio.Event()
        self._called = asyncio.Event()
        self._ready = asyncio.Event()
        self._loops = Loops("scheduler")
        bus.subscribe(ports.SHARDS, self._hear, on_gap=self._gap)
        bus.subscribe(ports.OWNERS, self._hear_owner, on_gap=self._called.set)

    @property
    def owner(self) -> UUID:
        return self._leases.me

    @property
    def clock(self) -> DatabaseClock:
        return self._clock

    @property
    def shards(self) -> list[int]:
        return sorted(self._holdings)

    def leads(self) -> bool:
        """Whether this process has the singleton duties: they go with one shard, and end with the lease."""
        return LEADER_SHARD in self._holdings and self._leases.held

    async def start(self) -> None:
        await self._leases.open()
        await self._leases.beat(self._decided)
        self._book = Book(int(self._clock.now_ms()))
        await self._bus.publish(ports.OWNERS, "join")
        self._ticking = True
        self._loops.forever("lease", self._lease_step, backoff_s=RETRY_S)
        self._loops.forever("tick", self._tick_step, backoff_s=RETRY_S)

    async def ready(self) -> None:
        await self._ready.wait()

    async def drain(self) -> None:
        """Hands the shards over to the peers, after the transaction under way."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._deciding.acquire(), HANDOVER_S)
        await self._loops.stop()
        try:
            await self._leases.leave()
        except AWAY as error:
            log.warning("could not hand over the shards; a peer takes them when it sees us gone", error=repr(error))
        self._drop(set(self._holdings))
        self._export()

    async def stop(self) -> None:
        await self._loops.stop()
        await self._leases.close()

    # Owning: the lease loop asks and tells; only the tick loop changes what is held ------------------

    async def _lease_step(self) -> None:
        await self.lease()
        if not self._arriving:
            self._ready.set()  # nothing to take: others own it all, and this one stands by
        if self._holdings and self._clock.monotonic() - self._counted >= COUNT_S:
            self._counted = self._clock.monotonic()
            await self._count_jobs()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._called.wait(), self._beat_s)
        self._called.clear()

    async def lease(self) -> None:
        """One beat: renews what is ours, finds what was given to us or lost, takes what nobody living owns."""
        view = await self._leases.beat(self._decided)
        self._compare(view)
        plan = self._leases.plan()
        self._leaving = {shard: peer for shard, peer in plan.give.items() if shard in self._holdings}
        mine = [s for s in view.shards if s.owner == self.owner]
        if plan.take:
            mine += await self._leases.take(plan.take)
        await self._load([s for s in mine if self._is_new(s)])
        self._joined = True
        self._wake.set()

    def _compare(self, view: View) -> None:
        seen = {s.shard: s for s in view.shards if s.owner == self.owner}
        for shard, holding in self._holdings.items():
            ours = seen.get(shard)
            if ours is None or ours.epoch > holding.epoch:
                self._lost[shard] = holding.epoch
            elif ours.epoch == holding.epoch and ours.changes > holding.loaded:
                self._edited.add(shard)

    def _is_new(self, shard: Shard) -> bool:
        holding = self._holdings.get(shard.shard)
        held = -1 if holding is None else holding.epoch
        return shard.epoch > held and shard.epoch > self._arriving.get(shard.shard, -1)

    async def _load(self, new: list[Shard]) -> None:
        """Here and not in the tick loop, so that what is held goes on firing meanwhile."""
        if not new:
            return
        missing = {s.shard: s for s in new}
        self._arriving |= {s.shard: s.epoch for s in new}
        rows: list[ShardSchedule] = []
        try:
            async with self._database.connection() as connection:
                async for portion in schedules.shard_schedules(connection, shards=sorted(missing)):
                    rows += portion
                    if len(rows) >= ARRIVAL_ROWS:
                        rows = await self._arrive(missing, rows)
        except BaseException:
            for shard in missing:
                self._arriving.pop(shard, None)
            raise
        self._arrivals.append(Arrival(missing, rows))

    async def _arrive(self, missing: dict[int, Shard], rows: list[ShardSchedule]) -> list[ShardSchedule]:
        """Passes on the shards whose rows are complete, and keeps the leases while a million schedules are read."""
        last = rows[-1].shard  # they come in the order of shards
        complete = {s: missing.pop(s) for s in [s for s in missing if s < last]}
        if complete:
            self._arrivals.append(Arrival(complete, [row for row in rows if row.shard < last]))
            self._wake.set()
        if self._leases.age_s > self._beat_s:
            await self._leases.beat(self._decided)
        while self._ticking and len(self._arrivals) > MOST_ARRIVALS:
            self._room.clear()
            await self._room.wait()
        return [row for row in rows if row.shard >= last]

    async def _take_in(self, arrival: Arrival) -> None:
        """Puts shards on the wheel and decides what nobody did: exactly (watermark, now]."""
        taken = arrival.shards
        try:
            self._drop(set(taken))
            # What `changes` said before the rows were read counts as loaded: a later edit is read twice, never missed.
            self._holdings |= {s.shard: Holding(s.epoch, s.changes) for s in taken.values()}
            now_ms = int(self._clock.now_ms())
            groups = self._book.learn(arrival.rows, {s.shard: s.watermark_ms for s in taken.values()}, upto_ms=now_ms)
            # What is on the wheel stays there: looking for garbage among a million of them would hold up the next fire.
            gc.freeze()
            await self._tick_all(groups, set(taken), now_ms, only=set(taken))
        except BaseException:
            self._drop(set(taken))  # the next beat finds them again
            raise
        finally:
            for shard, seen in taken.items():
                if self._arriving.get(shard) == seen.epoch:
                    del self._arriving[shard]
        self._look_for_waiting = True
        self._counted = float("-inf")
        log.info("took shards", shards=len(taken), schedules=len(self._book))

    async def _hand_over(self) -> None:
        """Between two transactions, so that everything up to the watermark is decided, and nothing beyond it."""
        leaving, self._leaving = self._leaving, {}
        heirs = [(s, self._holdings[s].epoch, peer) for s, peer in leaving.items() if s in self._holdings]
        if heirs:
            given = await self._leases.give(heirs)
            self._drop(given)
            log.info("handed shards over", shards=len(given), peers=len({peer for _, _, peer in heirs}))

    def _drop(self, shards: set[int]) -> None:
        held = shards & self._holdings.keys()
        for shard in held:
            del self._holdings[shard]
            metrics.SHARD_JOBS.remove(str(shard))
        self._book.forget_shards(sum(1 << s for s in held))

    def _drop_lost(self) -> None:
        lost = {s for s, epoch in self._lost.items() if s in self._holdings and self._holdings[s].epoch <= epoch}
        self._lost = {}
        if lost:
            log.warning("lost shards", shards=sorted(lost))
            self._drop(lost)

    async def _count_jobs(self) -> None:
        async with self._database.connection() as connection:
            counts = await shards.count_shard_jobs(connection, shards=self.shards)
        for shard in self._holdings:
            metrics.SHARD_JOBS.labels(str(shard)).set(counts.get(shard, 0))

    def _export(self) -> None:
        metrics.SCHEDULER_IS_LEADER.set(self.leads())
        metrics.WHEEL_ENTRIES.set(len(self._book))

    # Deciding ----------------------------------------------------------------------------------------

    async def _tick_step(self) -> None:
        await self._sleep()
        async with self._deciding:
            await self.decide()

    async def decide(self) -> None:
        """Everything that is due now: shards lost, given and taken, waiting executions, fires."""
        self._drop_lost()
        await self._hand_over()
        while self._arrivals:
            self._room.set()
            await self._take_in(self._arrivals.pop(0))
        if self._joined and not self._arriving:
            self._ready.set()
        self._export()
        now_ms = int(self._clock.now_ms())
        if self._look_for_waiting or (self._waiting_ms is not None and self._waiting_ms <= now_ms):
            await self._promote()
        groups = self._book.due(now_ms)
        edited, self._edited = self._edited & self._holdings.keys(), set()
        if groups or edited:
            try:
                settled = await self._tick_all(groups, edited, now_ms)
            except BaseException:
                self._book.put_back(groups)
                self._edited |= edited
                raise
            if not settled:
                return
        # Nothing that was due is left: the next beat may move the watermarks, also of shards where nothing was.
        self._decided = Decided(now_ms, [(s, h.epoch, h.loaded) for s, h in self._holdings.items()])

    async def _tick_all(
        self, groups: list[Group], edited: set[int], now_ms: int, *, only: set[int] | None = None
    ) -> bool:
        """Cuts a herd into transactions by shard. A shard whose transaction fails is simply decided again.

        False: some of it was not due yet by database time, and is back on the wheel.
        """
        started = self._clock.monotonic()
        touched, undecided = 0, list[Group]()
        for group in groups:
            touched |= group.shards
        wanted = sorted({s for s in bits(touched) if s in self._holdings and (only is None or s in only)} | edited)
        size = max(1, round(len(wanted) * CHUNK_JOBS / max(1, self._book.jobs_of(groups))))
        chunks = _chunks(wanted, size)

        async def decide_chunks() -> None:
            while chunks:
                chunk = chunks.pop()
                theirs = sum(1 << shard for shard in chunk)
                due = [group for group in groups if group.shards & theirs]
                ticked = await tick(
                    self._database,
                    self._book,
                    owner=self.owner,
                    holdings=self._holdings,
                    wanted=chunk,
                    groups=due,
                    until_ms=now_ms,
                )
                self._drop(ticked.lost)
                self._book.put_back(ticked.undecided)
                undecided.extend(ticked.undecided)
                self._hear_wait(ticked.wait_ms)
                self._count(ticked, due)

        # Chunks share no shard, so PostgreSQL may work on several at once.
        try:
            async with asyncio.TaskGroup() as together:
                for _ in range(min(PARALLEL_CHUNKS, len(chunks))):
                    together.create_task(decide_chunks())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        metrics.TICK_SECONDS.observe(self._clock.monotonic() - started)
        return not undecided

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
        if self._look_for_waiting or self._edited or self._arrivals or self._leaving or self._lost:
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

    def _hear_owner(self, payload: str) -> None:
        if payload in (str(self.owner), "free", "join"):
            self._called.set()

    def _hear_wait(self, due_ms: int | None) -> None:
        if due_ms is not None and (self._waiting_ms is None or due_ms < self._waiting_ms):
            self._waiting_ms = due_ms

    def _gap(self) -> None:
        self._edited |= self._holdings.keys()
        self._look_for_waiting = True
        self._wake.set()


def _chunks(shards: list[int], size: int) -> list[list[int]]:
    """The last ones, which are decided first, are small: workers begin with those while the others are decided."""
    small = max(1, size // 4)
    first = max(0, len(shards) - PARALLEL_CHUNKS * small)
    chunks = [shards[start : min(start + size, first)] for start in range(0, first, size)]
    return chunks + [shards[start : start + small] for start in range(first, len(shards), small)]

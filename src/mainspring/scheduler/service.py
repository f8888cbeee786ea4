"""The scheduler: owns shards, sleeps until something is due, and decides it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from functools import reduce
from operator import or_
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.clock import DatabaseClock
from mainspring.scheduler.herd import tick_in_chunks, touched_shards
from mainspring.scheduler.leases import Leases
from mainspring.scheduler.promotion import Promotion
from mainspring.scheduler.schedule_wheel import ScheduleWheel, UndecidedFires, shards_in
from mainspring.scheduler.shard_loader import LoadedShards, ShardLoader
from mainspring.scheduler.tick import OwnedShard, TickResult
from mainspring.service import Loops, Service
from mainspring.store import shards
from mainspring.store.db import AWAY, Database
from mainspring.store.shards import DecidedShards, Shard, ShardView
from mainspring.telemetry import metrics

log = structlog.get_logger()

LEASE_S = 5.0
BEAT_S = 1.0
"""Or a fifth of the lease, if that is less."""
RETRY_S = 0.0625
"""Doubles up to a second, so that no loop sleeps much longer than the database is away."""
HANDOVER_S = 2.0
"""How long a drain waits for the transaction under way before it is rolled back."""
COUNT_JOBS_S = 600.0
MAX_LAG_S = 5.0
"""A wheel that is further behind is not ready. The lease loop has it decide every beat, also when nothing is due."""
LEADER_SHARD = 0


class Scheduler(Service):
    """One scheduler process. Any number may run at once; the shard rows say which one decides what.

    The lease loop renews and takes shards; only the tick loop changes what is owned.
    """

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        *,
        lease_s: float = LEASE_S,
        name: str | None = None,
        coordinator: ports.Coordinator | None = None,
        delays: ports.Delays | None = None,
        fire_lock: ports.FireLock | None = None,
        clock: DatabaseClock | None = None,
    ) -> None:
        self._database = database
        self._bus = bus
        self._clock = clock or DatabaseClock()
        self._leases = Leases(database, self._clock, name=name, lease_s=lease_s, coordinator=coordinator)
        self._beat_s = min(BEAT_S, lease_s / 5)
        self._wheel = ScheduleWheel(0)
        self._owned: dict[int, OwnedShard] = {}
        self._decided = DecidedShards(0, ())
        self._wake = asyncio.Event()
        self._loader = ShardLoader(database, renew=self._renew_leases, ready=self._wake.set)
        self._promotion = Promotion(database, self._clock, delays)
        self._fire_lock = fire_lock
        self._joined = False
        self._leaving: dict[int, UUID] = {}
        self._lost: dict[int, int] = {}
        self._edited: set[int] = set()
        self._jobs_counted = float("-inf")
        self._deciding = asyncio.Lock()
        self._beat_now = asyncio.Event()
        self._ready = asyncio.Event()
        self._loops = Loops("scheduler")
        bus.subscribe(ports.SHARDS, self._on_shard_event, on_gap=self._on_gap)
        bus.subscribe(ports.OWNERS, self._on_owner_change, on_gap=self._beat_now.set)
        if coordinator is not None:
            coordinator.watch(self._beat_now.set)

    @property
    def owner(self) -> UUID:
        return self._leases.me

    @property
    def clock(self) -> DatabaseClock:
        return self._clock

    @property
    def shards(self) -> list[int]:
        return sorted(self._owned)

    def leads(self) -> bool:
        """Whether this process is the leader: leadership comes with one shard, and ends with the lease."""
        return LEADER_SHARD in self._owned and self._leases.held

    async def not_ready(self) -> str | None:
        """Why this scheduler does not decide fires on time, or None. Standing by without shards is ready."""
        if not self._joined:
            return "no lease yet"
        if not self._leases.held:
            return f"the lease was last renewed {self._leases.age_s:.1f} s ago"
        lag_s = (self._clock.now_ms() - self._decided.upto_ms) / 1000
        if lag_s > MAX_LAG_S:
            return f"lags: fires are decided up to {lag_s:.1f} s ago"
        return None

    async def start(self) -> None:
        await self._leases.open()
        await self._leases.join()
        await self._leases.beat(self._decided)
        self._wheel = ScheduleWheel(int(self._clock.now_ms()))
        self._bus.publish(ports.OWNERS, "join")
        self._loader.ticking = True
        self._loops.forever("lease", self._lease_step, backoff_s=RETRY_S)
        self._loops.forever("tick", self._tick_step, backoff_s=RETRY_S)

    async def ready(self) -> None:
        await self._ready.wait()

    async def drain(self) -> None:
        """Hand the shards over to the peers, after the transaction under way."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._deciding.acquire(), HANDOVER_S)
        await self._loops.stop()
        try:
            await self._leases.leave()
        except AWAY as error:
            log.warning("shards.handover_failed", error=repr(error))  # a peer takes them once it sees this process gone
        self._drop(set(self._owned))
        self._export()

    async def stop(self) -> None:
        await self._loops.stop()
        await self._leases.close()

    async def step(self) -> int | None:
        """Renew the leases and decide all that is due, without a hint; for a scheduler without its loops.

        Returns the next instant, in milliseconds, at which there may be something to decide.
        """
        self._on_gap()
        await self.lease()
        self._on_gap()
        await self.decide()
        wakes = [at for at in (self._wheel.wheel.next_wake(), self._promotion.next_ms) if at is not None]
        return int(min(wakes)) if wakes else None

    # Lease loop ----------------------------------------------------------------------------------------

    async def _lease_step(self) -> None:
        await self.lease()
        if not self._loader:
            self._ready.set()  # nothing to take: peers own every shard, and this process stands by
        if self._owned and self._clock.monotonic() - self._jobs_counted >= COUNT_JOBS_S:
            self._jobs_counted = self._clock.monotonic()
            await self._count_jobs()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._beat_now.wait(), self._beat_s)
        self._beat_now.clear()

    async def lease(self) -> None:
        """One beat: renew the leases, find shards that were handed to this process or lost, take unowned ones."""
        view = await self._leases.beat(self._decided)
        self._compare(view)
        changes = self._leases.changes()
        self._leaving = {shard: peer for shard, peer in changes.give.items() if shard in self._owned}
        mine = [s for s in view.shards if s.owner == self.owner]
        if changes.take:
            mine += await self._leases.take(changes.take)
        await self._loader.load([s for s in mine if self._is_new(s)])
        self._joined = True
        self._wake.set()

    def _compare(self, view: ShardView) -> None:
        seen = {s.shard: s for s in view.shards if s.owner == self.owner}
        for shard, owned in self._owned.items():
            ours = seen.get(shard)
            if ours is None or ours.epoch > owned.epoch:
                self._lost[shard] = owned.epoch
            elif ours.epoch == owned.epoch and ours.changes > owned.loaded:
                self._edited.add(shard)

    def _is_new(self, shard: Shard) -> bool:
        owned = self._owned.get(shard.shard)
        return (owned is None or shard.epoch > owned.epoch) and not self._loader.is_loading(shard)

    async def _renew_leases(self) -> None:
        if self._leases.age_s > self._beat_s:
            await self._leases.beat(self._decided)

    async def _count_jobs(self) -> None:
        async with self._database.connection() as connection:
            counts = await shards.count_shard_jobs(connection, shards=self.shards)
        for shard in self._owned:
            metrics.SHARD_JOBS.labels(str(shard)).set(counts.get(shard, 0))

    # Tick loop -----------------------------------------------------------------------------------------

    async def _tick_step(self) -> None:
        await self._sleep()
        async with self._deciding:
            await self.decide()

    async def _sleep(self) -> None:
        """Sleep until the next wheel entry, the next waiting execution, or a wake-up."""
        if self._promotion.pending or self._edited or self._loader.loaded or self._leaving or self._lost:
            return
        if self._wheel.too_costly:
            return
        wakes = [at for at in (self._wheel.wheel.next_wake(), self._promotion.next_ms) if at is not None]
        wait_s = max(0.0, (min(wakes) - self._clock.now_ms()) / 1000) if wakes else None
        if wait_s == 0.0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)
        self._wake.clear()

    async def decide(self) -> None:
        """Process everything that is due: lost, handed over and new shards, waiting executions, fires."""
        self._drop_lost()
        await self._hand_over()
        while self._loader.loaded:
            await self._take_in(self._loader.take())
        if self._joined and not self._loader:
            self._ready.set()
        self._export()
        owned = {shard: of.epoch for shard, of in self._owned.items()}
        await self._promotion.poll(owned)
        now_ms = int(self._clock.now_ms())
        if self._promotion.is_due(now_ms):
            await self._promotion.promote(owned)
        due = self._wheel.take_due(now_ms)
        edited, self._edited = self._edited & self._owned.keys(), set()
        if due or edited or self._wheel.too_costly:
            try:
                all_decided = await self._tick_all(due, edited, now_ms)
            except BaseException:
                self._wheel.put_back(due)
                self._edited |= edited
                raise
            if not all_decided:
                return
        # Nothing due is left: the next beat may move the watermarks, also of shards without fires.
        self._decided = DecidedShards(now_ms, [(s, owned.epoch, owned.loaded) for s, owned in self._owned.items()])

    async def _tick_all(
        self, due: list[UndecidedFires], edited: set[int], now_ms: int, *, only: set[int] | None = None
    ) -> bool:
        """Decide due fires and edits. False: some were not due yet by database time, and are back on the wheel."""
        undecided = list[UndecidedFires]()

        def on_tick(result: TickResult) -> None:
            self._drop(result.lost)
            if result.refused:
                self._beat_now.set()
            self._wheel.put_back(result.undecided)
            undecided.extend(result.undecided)
            self._promotion.expect(result.wait_ms)

        costly = shards_in(reduce(or_, self._wheel.too_costly.values(), 0))
        wanted = {s for s in (*touched_shards(due), *costly) if s in self._owned and (only is None or s in only)}
        await tick_in_chunks(
            self._database,
            self._wheel,
            owner=self.owner,
            owned=self._owned,
            wanted=sorted(wanted | edited),
            due=due,
            now_ms=now_ms,
            on_tick=on_tick,
            clock=self._clock,
            # Shards that were just taken need no lock, and a wrong lock must not keep their owner from deciding.
            fire_lock=self._fire_lock if only is None else None,
        )
        return not undecided

    # Owned shards --------------------------------------------------------------------------------------

    async def _take_in(self, loaded: LoadedShards) -> None:
        """Put new shards on the wheel and decide what was missed: exactly (watermark, now]."""
        taken = loaded.shards
        try:
            self._drop(set(taken))
            # The rows are younger than `changes`, so that counts as loaded: a later edit is read twice, never missed.
            self._owned |= {s.shard: OwnedShard(s.epoch, s.changes) for s in taken.values()}
            now_ms = int(self._clock.now_ms())
            due = self._wheel.add(loaded.rows, {s.shard: s.watermark_ms for s in taken.values()}, upto_ms=now_ms)
            # Wheel entries stay: a garbage collection that scans a million of them would delay the next fire.
            gc.freeze()
            await self._tick_all(due, set(taken), now_ms, only=set(taken))
        except BaseException:
            self._drop(set(taken))  # the next beat finds them again
            raise
        finally:
            self._loader.finish(taken)
        self._promotion.pending = True
        self._jobs_counted = float("-inf")
        log.info("shards.taken", shards=len(taken), schedules=len(self._wheel))

    async def _hand_over(self) -> None:
        """Hand shards to peers between two transactions: everything up to the watermark is decided, nothing beyond."""
        leaving, self._leaving = self._leaving, {}
        successors = [(s, self._owned[s].epoch, peer) for s, peer in leaving.items() if s in self._owned]
        if successors:
            given = await self._leases.give(successors)
            self._drop(given)
            log.info("shards.handed_over", shards=len(given), peers=len({peer for _, _, peer in successors}))

    def _drop_lost(self) -> None:
        lost = {s for s, epoch in self._lost.items() if s in self._owned and self._owned[s].epoch <= epoch}
        self._lost = {}
        if lost:
            log.warning("shards.lost", shards=sorted(lost))
            self._drop(lost)

    def _drop(self, shards: set[int]) -> None:
        owned = shards & self._owned.keys()
        for shard in owned:
            del self._owned[shard]
            metrics.SHARD_JOBS.remove(str(shard))
        self._wheel.forget_shards(sum(1 << s for s in owned))

    def _export(self) -> None:
        metrics.SCHEDULER_IS_LEADER.set(self.leads())
        metrics.WHEEL_ENTRIES.set(len(self._wheel))

    # Wake-ups ------------------------------------------------------------------------------------------

    def _on_shard_event(self, payload: str) -> None:
        what, _, value = payload.partition(" ")
        if what == "edit":
            self._edited.add(int(value))
        else:
            self._promotion.expect(int(value))
        self._wake.set()

    def _on_owner_change(self, payload: str) -> None:
        if payload in (str(self.owner), "free", "join"):
            self._beat_now.set()

    def _on_gap(self) -> None:
        self._edited |= self._owned.keys()
        self._promotion.pending = True
        self._wake.set()

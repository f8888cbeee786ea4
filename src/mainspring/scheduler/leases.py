"""This scheduler among its peers: one beat a second keeps its lease, its shards and its clock, and sees the others.

The beat runs on a connection of its own whose session holds an advisory lock. When the process is killed, the lock is
gone with the connection, and the next beat of a peer sees it: nobody waits for the lease. A process that is stopped or
cut off keeps its lock, and is replaced when its lease has ended. Taking over is always safe, because every change of
owner moves the epoch that the old owner's transactions check.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterable
from uuid import UUID, uuid4

import structlog

from mainspring import __version__
from mainspring.clock import DatabaseClock
from mainspring.scheduler.ownership import Plan, heirs, plan
from mainspring.store import shards
from mainspring.store.db import AWAY, Connection, Database
from mainspring.store.shards import Decided, Shard, View
from mainspring.telemetry import metrics

log = structlog.get_logger()

SKEWED_S = 1.0
"""From this on, a difference between this machine's clock and the database's is worth a warning."""
WARN_S = 300.0


class Leases:
    """The lease of one scheduler process. `beat` first; the rest acts on what it saw."""

    def __init__(self, database: Database, clock: DatabaseClock, *, name: str | None, lease_s: float) -> None:
        self.me = uuid4()
        host = socket.gethostname()
        self._scheduler = shards.Scheduler(self.me, name or f"{host}-{os.getpid()}", host, __version__)
        self._database = database
        self._clock = clock
        self._lease_s = lease_s
        self._watch: Connection | None = None
        self._watched = False
        self._beaten: float | None = None
        self._judges_from = 0.0
        self._warned = float("-inf")
        self._unanswered: float | None = None
        self._free_for: Counter[int] = Counter()
        self._view = View(0, frozenset(), [])

    @property
    def name(self) -> str:
        return self._scheduler.name

    @property
    def held(self) -> bool:
        """Whether the lease is ours, as far as we know."""
        return self._beaten is not None and self._clock.monotonic() - self._beaten < self._lease_s

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return float("inf") if self._beaten is None else self._clock.monotonic() - self._beaten

    async def open(self) -> None:
        """From now on peers see our death at once. Without it the lease alone counts."""
        connection = await self._database.dedicated(prepared=True)
        self._watch, self._watched = connection, False

    async def close(self) -> None:
        if self._watch is not None:
            watch, self._watch = self._watch, None
            with contextlib.suppress(*AWAY):
                await watch.close(timeout=2)

    async def beat(self, decided: Decided, *, draining: bool = False) -> View:
        """Renews everything that is ours and looks at the rest, in one statement."""
        try:
            async with asyncio.timeout(max(1.0, self._lease_s / 2)):
                if self._watch is None:
                    async with self._database.connection() as connection:
                        self._view = await self._beat(connection, decided, draining)
                else:
                    if self._watch.is_closed():
                        await self.open()
                    if not self._watched:
                        self._watched = await shards.watch_scheduler(self._watch, scheduler_id=self.me)
                    self._view = await self._beat(self._watch, decided, draining)
        except BaseException as error:
            if isinstance(error, TimeoutError):
                self._unanswered = self._clock.monotonic()
                await self._database.distrust_idle()
            if self._watch is not None:
                self._watch.terminate()  # an answer may be under way that belongs to no question any more
            raise
        self._end_stranded()
        return self._view

    def _end_stranded(self) -> None:
        """A beat went unanswered, and others are answered since: statements that still wait do so in vain."""
        if self._unanswered is not None and self._clock.monotonic() - self._unanswered > 2 * self._lease_s:
            self._database.end_stranded(longer_than_s=self._clock.monotonic() - self._unanswered)
            self._unanswered = None

    async def _beat(self, connection: Connection, decided: Decided, draining: bool) -> View:
        before = self._clock.monotonic()
        view = await shards.beat(
            connection,
            scheduler=self._scheduler,
            lease_s=self._lease_s,
            renew_below_s=self._lease_s / 2,
            watched=self._watched,
            draining=draining,
            decided=decided,
        )
        after = self._clock.monotonic()
        self._clock.observe(view.now_ms, before, after)
        self._tell_skew()
        # After a gap in our own beats the others may have had the same: the database was away, and they are given the
        # time to come back before anybody takes or gives.
        if self._beaten is not None and before - self._beaten > self._lease_s / 2:
            self._judges_from = after + self._lease_s / 2
        self._beaten = after
        return view

    def plan(self) -> Plan:
        """What has to change, by the last beat."""
        free = {s.shard for s in self._view.shards if not s.held}
        self._free_for = Counter({shard: self._free_for[shard] + 1 for shard in free})
        if self._clock.monotonic() < self._judges_from:
            return Plan()
        return plan(self._view, self.me, self._free_for)

    async def take(self, seen: list[Shard]) -> list[Shard]:
        async with self._database.connection() as connection:
            return await shards.take_shards(connection, owner=self.me, lease_s=self._lease_s, seen=seen)

    async def give(self, heirs: Iterable[tuple[int, int, UUID | None]]) -> set[int]:
        """(shard, epoch, new owner) in, the shards that are given away out."""
        async with self._database.connection() as connection:
            return await shards.hand_over_shards(
                connection, owner=self.me, lease_s=self._lease_s, heirs=sorted(heirs, key=lambda h: h[0])
            )

    async def leave(self) -> None:
        """Gives everything away, whether it was taken in or not, and is no peer any more."""
        view = await self.beat(Decided(0, ()), draining=True)
        await self.give(heirs(view, self.me))
        async with self._database.connection() as connection:
            await shards.leave_schedulers(connection, scheduler_id=self.me)

    def _tell_skew(self) -> None:
        skew_s = self._clock.skew_s()
        metrics.CLOCK_SKEW.set(skew_s)
        if abs(skew_s) > SKEWED_S and self._clock.monotonic() - self._warned > WARN_S:
            self._warned = self._clock.monotonic()
            log.warning("this machine's clock and the database's differ; fires follow the database", skew_s=skew_s)

"""The lease of a scheduler and its shards: one beat a second renews both, and reads the state of the peers.

The beat runs on a dedicated connection whose session holds an advisory lock. When the process is killed, the lock ends
with the connection, and the next beat of a peer sees that: no peer waits for the lease to expire. A process that is
stopped or cut off keeps its lock, and is replaced when its lease has expired. Taking over is always safe, because every
change of owner moves the epoch that the old owner's transactions check. A coordinator, if there is one, reports such a
process before its lease expires.
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

from mainspring import __version__, ports
from mainspring.clock import DatabaseClock
from mainspring.scheduler.ownership import OwnershipChanges, ownership_changes, successors
from mainspring.store import shards
from mainspring.store.db import AWAY, Connection, Database
from mainspring.store.shards import DecidedShards, Shard, ShardView
from mainspring.telemetry import metrics

log = structlog.get_logger()

MAX_SKEW_S = 1.0
"""A larger difference between this machine's clock and the database's is logged."""
SKEW_WARNING_S = 300.0


class Leases:
    """The lease of one scheduler process. Call `beat` first; the other methods act on what it saw."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        *,
        name: str | None,
        lease_s: float,
        coordinator: ports.Coordinator | None = None,
    ) -> None:
        self.me = uuid4()
        host = socket.gethostname()
        self._scheduler = shards.Scheduler(self.me, name or f"{host}-{os.getpid()}", host, __version__)
        self._database = database
        self._coordinator = coordinator
        self._clock = clock
        self._lease_s = lease_s
        self._connection: Connection | None = None
        self._locked = False
        self._beaten: float | None = None
        self._changes_from = 0.0
        self._warned = float("-inf")
        self._unanswered: float | None = None
        self._unowned_beats: Counter[int] = Counter()
        self._view = ShardView(0, frozenset(), [])

    @property
    def name(self) -> str:
        return self._scheduler.name

    @property
    def held(self) -> bool:
        """Whether this process has the lease, as far as it knows."""
        return self._beaten is not None and self._clock.monotonic() - self._beaten < self._lease_s

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return float("inf") if self._beaten is None else self._clock.monotonic() - self._beaten

    async def open(self) -> None:
        """Open the connection that lets peers see a crash at once. Without it only the lease counts."""
        connection = await self._database.dedicated(prepared=True)
        self._connection, self._locked = connection, False

    async def join(self) -> None:
        """Register at the coordinator, if there is one."""
        if self._coordinator is not None:
            await self._coordinator.join(self.me, self.name)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(*AWAY):
                await connection.close(timeout=2)

    async def beat(self, decided: DecidedShards, *, draining: bool = False) -> ShardView:
        """Renew the leases of this process and read the state of all shards, in one statement."""
        try:
            async with asyncio.timeout(max(1.0, self._lease_s / 2)):
                if self._connection is None:
                    async with self._database.connection() as connection:
                        self._view = await self._beat(connection, decided, draining)
                else:
                    if self._connection.is_closed():
                        await self.open()
                    if not self._locked:
                        self._locked = await shards.lock_liveness(self._connection, scheduler_id=self.me)
                    self._view = await self._beat(self._connection, decided, draining)
        except BaseException as error:
            if isinstance(error, TimeoutError):
                self._unanswered = self._clock.monotonic()
                await self._database.discard_idle()
            if self._connection is not None:
                self._connection.terminate()  # a late answer must not be read as that of the next statement
            raise
        self._end_stranded()
        if self._coordinator is not None:
            self._view = self._view.without(self._coordinator.gone() - {self.me})
        return self._view

    def _end_stranded(self) -> None:
        """Close connections that have waited since a beat timed out: later beats were answered, they never will be."""
        if self._unanswered is not None and self._clock.monotonic() - self._unanswered > 2 * self._lease_s:
            self._database.end_stalled(longer_than_s=self._clock.monotonic() - self._unanswered)
            self._unanswered = None

    async def _beat(self, connection: Connection, decided: DecidedShards, draining: bool) -> ShardView:
        before = self._clock.monotonic()
        view = await shards.beat(
            connection,
            scheduler=self._scheduler,
            lease_s=self._lease_s,
            renew_below_s=self._lease_s / 2,
            watched=self._locked,
            draining=draining,
            decided=decided,
        )
        after = self._clock.monotonic()
        self._clock.observe(view.now_ms, before, after)
        self._report_skew()
        # After a gap between beats the peers may have had the same gap, because the database was away: they get time to
        # come back before any shard changes its owner.
        if self._beaten is not None and before - self._beaten > self._lease_s / 2:
            self._changes_from = after + self._lease_s / 2
        self._beaten = after
        return view

    def changes(self) -> OwnershipChanges:
        """Return the shards to take and to give, by the last beat."""
        free = {s.shard for s in self._view.shards if not s.held}
        self._unowned_beats = Counter({shard: self._unowned_beats[shard] + 1 for shard in free})
        if self._clock.monotonic() < self._changes_from:
            return OwnershipChanges()
        return ownership_changes(self._view, self.me, self._unowned_beats)

    async def take(self, seen: list[Shard]) -> list[Shard]:
        fence = 0 if self._coordinator is None else await self._coordinator.fence()
        async with self._database.connection() as connection:
            return await shards.take_shards(connection, owner=self.me, lease_s=self._lease_s, seen=seen, fence=fence)

    async def give(self, to: Iterable[tuple[int, int, UUID | None]]) -> set[int]:
        """Hand over (shard, epoch, new owner); return the shards that were handed over."""
        async with self._database.connection() as connection:
            return await shards.hand_over_shards(
                connection, owner=self.me, lease_s=self._lease_s, to=sorted(to, key=lambda one: one[0])
            )

    async def leave(self) -> None:
        """Hand over every shard, on the wheel or not, and leave the set of peers."""
        view = await self.beat(DecidedShards(0, ()), draining=True)
        await self.give(successors(view, self.me))
        async with self._database.connection() as connection:
            await shards.leave_schedulers(connection, scheduler_id=self.me)
        if self._coordinator is not None:
            await self._coordinator.leave()

    def _report_skew(self) -> None:
        skew_s = self._clock.skew_s()
        metrics.CLOCK_SKEW.set(skew_s)
        if abs(skew_s) > MAX_SKEW_S and self._clock.monotonic() - self._warned > SKEW_WARNING_S:
            self._warned = self._clock.monotonic()
            log.warning("clock.skewed", skew_s=skew_s)  # fires follow the database's clock

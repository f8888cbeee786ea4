"""Promotes waiting executions of the owned shards to queued when they are due."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.clock import DatabaseClock
from mainspring.ports import Delays
from mainspring.scheduler.blackout_gate import decide_waiting_fires
from mainspring.store import fires
from mainspring.store.db import Database

BATCH = 500
"""Of each shard."""
AHEAD = 32
"""Executions of each shard that are read ahead into the engine of the delays, if there is one."""
POLL_S = 10.0
"""How often the database is asked for the next waiting execution without a hint, in case one was lost."""


class Promotion:
    """`next_ms` comes from the database, from hints, and from the engine of the delays with what was read ahead.

    An instant of which only a hint is known stands for others that may be due after it, so the database is asked then.
    """

    def __init__(self, database: Database, clock: DatabaseClock, delays: Delays | None = None) -> None:
        self.pending = True  # whether the database has to be asked, whatever `next_ms` says
        self.next_ms: int | None = None
        self.reads = 0  # how often the database was asked what waits
        self._hinted_ms: int | None = None
        self._surplus = 0  # promoted before the look-up that counts them as due
        self._database = database
        self._clock = clock
        self._delays = delays
        self._asked_at = float("-inf")

    async def poll(self, owned: Mapping[int, int]) -> None:
        """Ask the database for the next waiting execution, unless it was asked recently. `owned`: epochs by shard."""
        if owned and self._clock.monotonic() - self._asked_at >= POLL_S:
            self._asked_at = self._clock.monotonic()
            async with self._database.hot() as connection:
                due_ms = await fires.next_waiting_ms(connection, shards=list(owned))
            if due_ms is not None and (self.next_ms is None or due_ms < self.next_ms):
                self.expect(due_ms)

    def is_due(self, now_ms: int) -> bool:
        return self.pending or (self.next_ms is not None and self.next_ms <= now_ms)

    def expect(self, due_ms: int | None) -> None:
        """Record that an execution waits until then."""
        self._hinted_ms = _earlier(self._hinted_ms, due_ms)
        self.next_ms = _earlier(self.next_ms, due_ms)

    async def promote(self, owned: Mapping[int, int]) -> None:
        now_ms = int(self._clock.now_ms())
        unknown = self.pending or self._delays is None or (self._hinted_ms is not None and self._hinted_ms <= now_ms)
        self.pending = False
        try:
            promoted = count = await self._promote_batch(owned)
            while count >= BATCH:
                promoted += (count := await self._promote_batch(owned))
            if unknown or not await self._take_ahead(owned, now_ms, promoted):
                await self._read(owned)
        except BaseException:
            self.pending = True
            raise

    async def _take_ahead(self, owned: Mapping[int, int], now_ms: int, promoted: int) -> bool:
        """Continue with what was read ahead. False: it has ended, or something that was due was not promoted."""
        assert self._delays is not None
        self.next_ms = self._hinted_ms  # before the look-up: a hint that arrives meanwhile must not be overwritten
        upcoming = await self._delays.take(owned.items(), now_ms)
        # The database promotes also what became due since `now_ms`, which the next look-up has.
        self._surplus += promoted
        if upcoming is None or upcoming.due > self._surplus:
            return False
        self._surplus -= upcoming.due
        self.next_ms = _earlier(self.next_ms, upcoming.next_ms)
        return True

    async def _read(self, owned: Mapping[int, int]) -> None:
        self._asked_at = self._clock.monotonic()
        self.next_ms = self._hinted_ms = None  # before the query: a hint that arrives meanwhile must not be overwritten
        due_ms = await self._ask(owned)
        if due_ms is not None and due_ms <= self._clock.now_ms():  # not promoted: its tenant has blackouts
            await decide_waiting_fires(self._database, shards=list(owned))
            due_ms = await self._ask(owned)
        self.next_ms = _earlier(self.next_ms, due_ms)

    async def _ask(self, owned: Mapping[int, int]) -> int | None:
        """Return when the next waiting execution is due; with an engine, read further ones ahead."""
        self.reads += 1
        self._surplus = 0
        async with self._database.hot() as connection:
            if self._delays is None:
                return await fires.next_waiting_ms(connection, shards=list(owned))
            found = await fires.waiting_ahead(connection, shards=list(owned), limit=AHEAD)
        self._delays.keep(
            {(shard, owned[shard]): ahead.due_ms for shard, ahead in found.items()},
            ends={(shard, owned[shard]): ahead.end_ms for shard, ahead in found.items() if ahead.end_ms is not None},
        )
        first = [ahead.due_ms[0] if ahead.due_ms else ahead.end_ms for ahead in found.values()]
        return min((at for at in first if at is not None), default=None)

    async def _promote_batch(self, owned: Mapping[int, int]) -> int:
        async with self._database.hot() as connection:  # returned after each batch, which sends its hints
            return await fires.promote_waiting(connection, shards=list(owned), limit=BATCH)


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)

"""Promotes waiting executions of the owned shards to queued when they are due."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.clock import DatabaseClock
from mainspring.scheduler.blackout_gate import decide_waiting_fires
from mainspring.store import fires
from mainspring.store.db import Database

BATCH = 500
POLL_S = 10.0
"""How often the database is asked for the next waiting execution without a hint, in case one was lost."""


class Promotion:
    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self.pending = True  # whether the database has to be asked, whatever `next_ms` says
        self.next_ms: int | None = None
        self._database = database
        self._clock = clock
        self._asked_at = float("-inf")

    async def poll(self, shards: Sequence[int]) -> None:
        """Ask the database for the next waiting execution, unless it was asked recently."""
        if shards and self._clock.monotonic() - self._asked_at >= POLL_S:
            self._asked_at = self._clock.monotonic()
            async with self._database.hot() as connection:
                self.expect(await fires.next_waiting_ms(connection, shards=shards))

    def is_due(self, now_ms: int) -> bool:
        return self.pending or (self.next_ms is not None and self.next_ms <= now_ms)

    def expect(self, due_ms: int | None) -> None:
        """Record that an execution waits until then."""
        if due_ms is not None and (self.next_ms is None or due_ms < self.next_ms):
            self.next_ms = due_ms

    async def promote(self, shards: Sequence[int]) -> None:
        self.pending = False
        self._asked_at = self._clock.monotonic()
        try:
            while await self._promote_batch(shards):
                pass
            async with self._database.hot() as connection:
                self.next_ms = None  # before the query: a hint that arrives meanwhile must not be overwritten
                due_ms = await fires.next_waiting_ms(connection, shards=shards)
            if due_ms is not None and due_ms <= self._clock.now_ms():  # not promoted: its tenant has blackouts
                await decide_waiting_fires(self._database, shards=shards)
                async with self._database.hot() as connection:
                    due_ms = await fires.next_waiting_ms(connection, shards=shards)
            self.expect(due_ms)
        except BaseException:
            self.pending = True
            raise

    async def _promote_batch(self, shards: Sequence[int]) -> int:
        async with self._database.hot() as connection:  # returned after each batch, which sends its hints
            return await fires.promote_waiting(connection, shards=shards, limit=BATCH)

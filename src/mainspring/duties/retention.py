"""Retention: creates partitions ahead of time and deletes expired rows. The leading scheduler runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.service import Loops, Service
from mainspring.store import (
    backfills,
    checkpoints,
    dead_letters,
    event_outbox,
    evictions,
    lines,
    retention,
    runs,
    sessions,
    trigger_files,
    trigger_starts,
    trigger_topics,
    triggers,
)
from mainspring.store.db import Connection, Database

log = structlog.get_logger()

INTERVAL_S = 600.0
STANDBY_S = 1.0
"""How often a process checks, in memory, whether it leads or the interval is over."""
PARTITION_DAYS = 7
KEEP_DEAD_LETTERS_S = 14 * 86_400.0
KEEP_RUNS_S = 90 * 86_400.0
KEEP_HISTORY_S = 90 * 86_400.0
KEEP_OUTPUT_S = 30 * 86_400.0
KEEP_EVENTS_S = 7 * 86_400.0
"""Of events that wait for the event stream."""
RUNS_PER_STATEMENT = 50
ATTEMPTS_PER_STATEMENT = 5_000
HISTORY_PER_STATEMENT = 10_000
MAX_STATEMENTS = 100
"""Rows are deleted in batches, so that no statement holds many locks or runs long. The next round deletes the rest."""


class Retention(Service):
    """Deletes dead letters, runs, backfills, history and output after their retention periods."""

    def __init__(
        self,
        database: Database,
        *,
        leads: Callable[[], bool],
        clock: Clock | None = None,
        keep_dead_letters_s: float = KEEP_DEAD_LETTERS_S,
        keep_runs_s: float = KEEP_RUNS_S,
        keep_history_s: float = KEEP_HISTORY_S,
        keep_output_s: float = KEEP_OUTPUT_S,
        archives: bool = False,
    ) -> None:
        """With `archives`, partitions and attempts stay: the archive duty drops them once they are archived."""
        self._database = database
        self._leads = leads
        self._clock = clock or SystemClock()
        self._keep_dead_letters_s = keep_dead_letters_s
        self._keep_runs_s = keep_runs_s
        self._keep_history_s = keep_history_s
        self._keep_output_s = keep_output_s
        self._archives = archives
        self._last = float("-inf")
        self._loops = Loops("retention")

    async def start(self) -> None:
        self._loops.forever("round", self._round)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _round(self) -> None:
        now = self._clock.monotonic()
        if self._leads() and now - self._last >= INTERVAL_S:
            self._last = now
            await self.run_once()
        await asyncio.sleep(STANDBY_S)

    async def run_once(self) -> None:
        """Create the next partitions and delete all that has expired."""
        async with self._database.connection() as connection:
            await retention.make_partitions(connection, days=PARTITION_DAYS)
            if not self._archives:
                await self._drop_partitions(connection)
            await retention.forget_idempotency_keys(connection)
            await retention.forget_request_keys(connection)
            await checkpoints.forget_checkpoints(connection)
            await lines.forget_lines(connection)
            await sessions.forget_function_sets(connection)
            await evictions.forget_evictions(connection)
            limit = MAX_STATEMENTS * RUNS_PER_STATEMENT
            await triggers.forget_trigger_deliveries(connection, limit=limit)
            await event_outbox.forget_events(connection, after_s=KEEP_EVENTS_S, limit=limit)
            await trigger_files.forget_gone_files(connection, limit=limit)
            await trigger_topics.forget_positions(connection, limit=limit)
            await trigger_starts.forget_starts(connection, after_s=self._keep_history_s, limit=limit)
            await self._forget_of_tenants(connection)
            await dead_letters.forget_dead_letters(connection, after_s=self._keep_dead_letters_s)
            await self._forget_in_batches(connection)

    async def _drop_partitions(self, connection: Connection) -> None:
        dropped = await retention.drop_partitions(connection, "history", after_s=self._keep_history_s)
        dropped += await retention.drop_partitions(connection, "log_chunks", after_s=self._keep_output_s)
        if dropped:
            log.info("partitions.dropped", partitions=dropped)

    async def _forget_of_tenants(self, connection: Connection) -> None:
        """Delete what tenants keep for a shorter time than the server: rows in batches, since they share days."""
        for tenant in await retention.shorter_retention(connection, than_s=self._keep_history_s):
            for _ in range(MAX_STATEMENTS):
                if await retention.forget_history(connection, tenant=tenant, limit=HISTORY_PER_STATEMENT) is None:
                    break

    async def _forget_in_batches(self, connection: Connection) -> None:
        for _ in range(MAX_STATEMENTS):
            deleted = await runs.forget_runs(connection, after_s=self._keep_runs_s, limit=RUNS_PER_STATEMENT)
            if deleted < RUNS_PER_STATEMENT:
                break
        for _ in range(0 if self._archives else MAX_STATEMENTS):
            if not await retention.forget_attempts(
                connection, after_s=self._keep_history_s, limit=ATTEMPTS_PER_STATEMENT
            ):
                break
        limit = MAX_STATEMENTS * RUNS_PER_STATEMENT
        await backfills.forget_backfills(connection, after_s=self._keep_runs_s, limit=limit)

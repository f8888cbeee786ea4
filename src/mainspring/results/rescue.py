"""Gives back what ended sessions were running, and keeps the tables in shape: duties of one scheduler at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.results.settle import Report, Settler
from mainspring.service import Loops, Service
from mainspring.store import backfills, checkpoints, dead_letters, evictions, lines, overlaps, runs, sessions, upkeep
from mainspring.store.db import Database
from mainspring.store.results import Ended
from mainspring.telemetry import metrics

log = structlog.get_logger()

LOOK_S = (1.0, 4.0)
"""Least and most between two looks; within, the end of the next lease counts. So an idle cluster asks little."""
SWEEP_S = 10.0
UPKEEP_S = 600.0
PARTITION_DAYS = 7
BATCH = 500
KEEP_DEAD_LETTERS_S = 14 * 86_400.0
KEEP_RUNS_S = 90 * 86_400.0
KEEP_HISTORY_S = 90 * 86_400.0
KEEP_OUTPUT_S = 30 * 86_400.0
RUNS_AT_ONCE = 50
ATTEMPTS_AT_ONCE = 5_000
PORTIONS = 100


class Rescue(Service):
    """Looks for sessions whose lease has ended, by database time, and settles what they ran as lost."""

    def __init__(
        self,
        database: Database,
        settler: Settler,
        *,
        leads: Callable[[], bool],
        clock: Clock | None = None,
        keep_dead_letters_s: float = KEEP_DEAD_LETTERS_S,
        keep_runs_s: float = KEEP_RUNS_S,
        keep_history_s: float = KEEP_HISTORY_S,
        keep_output_s: float = KEEP_OUTPUT_S,
    ) -> None:
        self._database = database
        self._settler = settler
        self._leads = leads
        self._clock = clock or SystemClock()
        self._keep_dead_letters_s = keep_dead_letters_s
        self._keep_runs_s = keep_runs_s
        self._keep_history_s = keep_history_s
        self._keep_output_s = keep_output_s
        self._swept = self._kept = float("-inf")
        self._loops = Loops("rescue")

    async def start(self) -> None:
        self._loops.forever("look", self._look)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _look(self) -> None:
        wait_s, most_s = LOOK_S
        if self._leads():
            async with self._database.connection() as connection:
                expired, next_end_s = await sessions.expire_sessions(connection)
            wait_s = min(max(wait_s, most_s if next_end_s is None else next_end_s), most_s)
            now = self._clock.monotonic()
            if expired or now - self._swept >= SWEEP_S:
                self._swept = now
                await rescue_orphans(self._database, self._settler)
                await self._release_blocked()
            if now - self._kept >= UPKEEP_S:
                self._kept = now
                await self.keep()
        await asyncio.sleep(wait_s)

    async def _release_blocked(self) -> None:
        """The net under the release that follows a settling: a server may have died in between."""
        async with self._database.connection() as connection:
            blocked = await overlaps.blocked_jobs(connection, limit=10_000)
        if blocked:
            await self._settler.release(blocked)

    async def keep(self) -> None:
        """Makes what will be needed and forgets what was kept long enough."""
        async with self._database.connection() as connection:
            await upkeep.make_partitions(connection, days=PARTITION_DAYS)
            dropped = await upkeep.drop_partitions(connection, "history", after_s=self._keep_history_s)
            dropped += await upkeep.drop_partitions(connection, "log_chunks", after_s=self._keep_output_s)
            if dropped:
                log.info("days that were kept long enough are gone", partitions=dropped)
            await upkeep.forget_idempotency_keys(connection)
            await checkpoints.forget_checkpoints(connection)
            await lines.forget_lines(connection)
            await evictions.forget_evictions(connection)
            await dead_letters.forget_dead_letters(connection, after_s=self._keep_dead_letters_s)
            # In portions, so that no statement holds much or lasts long; what is left has time until the next upkeep.
            for _ in range(PORTIONS):
                if await runs.forget_runs(connection, after_s=self._keep_runs_s, limit=RUNS_AT_ONCE) < RUNS_AT_ONCE:
                    break
            for _ in range(PORTIONS):
                if await upkeep.forget_attempts(connection, after_s=self._keep_history_s, limit=ATTEMPTS_AT_ONCE) == 0:
                    break
            await backfills.forget_backfills(connection, after_s=self._keep_runs_s, limit=PORTIONS * RUNS_AT_ONCE)


async def rescue_orphans(database: Database, settler: Settler) -> int:
    """Settles as lost every running execution of an ended session. Repeatable: a crash half-way loses nothing."""
    rescued = 0
    while True:
        async with database.connection() as connection:
            orphans = await sessions.orphans(connection, limit=BATCH)
        if not orphans:
            return rescued
        by_session: dict[object, list[sessions.Orphan]] = {}
        for orphan in orphans:
            by_session.setdefault(orphan.session_id, []).append(orphan)
        for group in by_session.values():
            ended = [
                Ended(o.execution_id, o.attempt, o.session_id, "lost", error=f"worker {o.worker} was lost")
                for o in group
            ]
            stale = await settler.settle(Report(group[0].session_id, ended))
            rescued += len(ended) - len(stale)
        metrics.RESCUED.inc(len(orphans))
        log.warning("rescued executions of ended sessions", executions=len(orphans), sessions=len(by_session))

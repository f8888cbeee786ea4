"""Rescues executions of ended sessions. The leading scheduler runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.domain.settlement import AttemptResult
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.service import Loops, Service
from mainspring.store import overlaps, sessions
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

CHECK_S = (1.0, 4.0)
"""Shortest and longest pause between two checks. In between, the end of the next lease decides, so that an idle
cluster sends few queries."""
SWEEP_S = 10.0
"""Interval of the sweep for orphans and blocked executions when no session has expired."""
BATCH = 500
"""Executions rescued by one query."""
MAX_BLOCKED_JOBS = 10_000


class Rescue(Service):
    """Expires sessions whose lease has ended, by database time, and settles their executions as lost."""

    def __init__(
        self, database: Database, settler: Settler, *, leads: Callable[[], bool], clock: Clock | None = None
    ) -> None:
        self._database = database
        self._settler = settler
        self._leads = leads
        self._clock = clock or SystemClock()
        self._swept = float("-inf")
        self._loops = Loops("rescue")

    async def start(self) -> None:
        self._loops.forever("check", self._check)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _check(self) -> None:
        wait_s, longest_s = CHECK_S
        if self._leads():
            next_end_s = await self.rescue()
            wait_s = min(max(wait_s, longest_s if next_end_s is None else next_end_s), longest_s)
        await asyncio.sleep(wait_s)

    async def rescue(self) -> float | None:
        """Expire sessions and settle what they leave behind; return the seconds until the next lease ends."""
        async with self._database.connection() as connection:
            expired, next_end_s = await sessions.expire_sessions(connection)
        now = self._clock.monotonic()
        if expired or now - self._swept >= SWEEP_S:
            self._swept = now
            await rescue_orphans(self._database, self._settler)
            await self._release_blocked()
        return next_end_s

    async def _release_blocked(self) -> None:
        """Repeat the release that follows a settlement: a server may have died between the two."""
        async with self._database.connection() as connection:
            blocked = await overlaps.blocked_jobs(connection, limit=MAX_BLOCKED_JOBS)
        if blocked:
            await self._settler.release(blocked)


async def rescue_orphans(database: Database, settler: Settler) -> int:
    """Settle every running execution of an ended session as lost. Repeatable after a crash half-way.

    Results that are still in the result stream are settled first.
    """
    rescued, caught_up = 0, False
    while True:
        async with database.connection() as connection:
            orphans = await sessions.orphans(connection, limit=BATCH)
        if not orphans:
            return rescued
        if not caught_up:
            await settler.catch_up()
            caught_up = True
            continue
        by_session: dict[object, list[sessions.Orphan]] = {}
        for orphan in orphans:
            by_session.setdefault(orphan.session_id, []).append(orphan)
        for group in by_session.values():
            ended = [
                AttemptResult(
                    o.execution_id,
                    o.attempt,
                    o.session_id,
                    "lost",
                    error=f"{'spot ' if o.spot else ''}worker {o.worker} was lost",
                    spot=o.spot,
                )
                for o in group
            ]
            stale = await settler.settle(Report(group[0].session_id, ended))
            rescued += len(ended) - len(stale)
        metrics.RESCUED.inc(len(orphans))
        log.warning("executions.rescued", executions=len(orphans), sessions=len(by_session))

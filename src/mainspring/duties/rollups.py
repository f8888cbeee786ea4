"""Adds up history to hourly statistics, so that no page or alert scans it. The leading scheduler runs it.

What finished is read once, a few minutes later, by block ranges; settling an execution writes nothing for it. The
transaction that adds an interval also moves the progress, so a crash neither repeats nor loses an interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from mainspring.service import Loops, Service
from mainspring.store import rollups
from mainspring.store.db import Database

log = structlog.get_logger()

INTERVAL = timedelta(minutes=5)
"""What one transaction adds up. Jobs that run every minute then write one row for five executions."""
STANDBY_S = 5.0
"""How often a scheduler checks whether it leads, which asks the database nothing."""
LONGEST_REST_S = 60.0
"""A leader asks the database at least this often whether an interval is over."""
LONGEST_GAP = timedelta(days=2)
"""After a longer time without a leader, statistics continue a day ago, and older executions are left out."""
KEEP_S = 35 * 86_400.0
FORGOTTEN_AT_ONCE = 5_000
HOUR = timedelta(hours=1)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Rollups(Service):
    """The loop of the leader; `run_once` adds all intervals that are over."""

    def __init__(self, database: Database, *, leads: Callable[[], bool], interval: timedelta = INTERVAL) -> None:
        self._database = database
        self._leads = leads
        self._interval = interval
        self._over_in_s = STANDBY_S
        self._loops = Loops("rollups")

    async def start(self) -> None:
        self._loops.forever("round", self._round)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _round(self) -> None:
        if not self._leads():
            await asyncio.sleep(STANDBY_S)
            return
        await self.run_once()
        await asyncio.sleep(min(self._over_in_s, LONGEST_REST_S))

    async def run_once(self) -> int:
        """Add all intervals that are over and delete expired statistics; return how many executions were added."""
        added = 0
        while (found := await self._add_interval()) is not None:
            added += found
        return added

    async def _add_interval(self) -> int | None:
        """Add the next interval in a transaction; None if it is not over."""
        async with self._database.transaction() as connection:
            progress = await rollups.lock_rollups(connection)
            since = progress.rolled_up_to
            if progress.ready_to - since > LONGEST_GAP:
                since = _full_hour(progress.ready_to) - timedelta(days=1)
                log.warning("rollups.restarted", last=progress.rolled_up_to.isoformat(), at=since.isoformat())
                await rollups.restart_rollups(connection, at=since)
            until = since + self._interval
            if until > progress.ready_to:
                self._over_in_s = max(STANDBY_S, (until - progress.ready_to).total_seconds())
                return None
            added = await rollups.roll_up(connection, since=since, until=until)
            await rollups.forget_rollups(connection, after_s=KEEP_S, limit=FORGOTTEN_AT_ONCE)
        return added


def _full_hour(at: datetime) -> datetime:
    return EPOCH + (at - EPOCH) // HOUR * HOUR

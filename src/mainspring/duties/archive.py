"""Leader duty: moves old days of history and output to the archive, and enforces the retention of the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from mainspring.archive.write import ArchiveWriter
from mainspring.backends.archive_places import ArchivePlace
from mainspring.service import Loops, Service
from mainspring.store import archives
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

INTERVAL_S = 600.0
STANDBY_S = 1.0
"""How often a process checks, in memory, whether it leads."""
CONNECTIONS = 2


class ArchiveDuty(Service):
    """Archives what is old enough every ten minutes, on connections of its own: a copy may take minutes."""

    def __init__(
        self,
        dsn: str,
        place: ArchivePlace,
        *,
        leads: Callable[[], bool],
        after_s: float,
        keep_s: float | None,
    ) -> None:
        self._database = Database(dsn, size=CONNECTIONS)
        self._writer = ArchiveWriter(self._database, place, leads=leads)
        self._leads = leads
        self._after_s = after_s
        self._keep_s = keep_s
        self._last = float("-inf")
        self._loops = Loops("archive")

    async def start(self) -> None:
        await self._database.open()
        self._loops.forever("round", self._round, backoff_s=30.0)

    async def stop(self) -> None:
        await self._loops.stop()
        await self._database.close()

    async def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._leads() and now - self._last >= INTERVAL_S:
            await self.run_once()
            self._last = now
        await asyncio.sleep(STANDBY_S)

    async def run_once(self) -> None:
        """Archive every day that is old enough, then delete what the archive need not keep."""
        try:
            for parent in CONTENTS:
                await self._writer.archive_all(parent, after_s=self._after_s)
            await self._writer.forget(keep_s=self._keep_s)
        finally:
            async with self._database.connection() as connection:
                for parent in CONTENTS:
                    lag = await archives.lag_days(connection, parent=parent, after_s=self._after_s)
                    metrics.ARCHIVE_LAG.labels(parent).set(lag)

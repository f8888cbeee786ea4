"""The overview, computed at most once in a while for each tenant, however many browsers watch."""

from __future__ import annotations

import asyncio

from mainspring.clock import Clock, SystemClock
from mainspring.intake.overview import Overview, overview
from mainspring.store.db import Database

FRESH_S = 1.0


class Pulse:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[int, tuple[float, Overview]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def overview(self, database: Database, *, tenant: int) -> Overview:
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            known = self._known.get(tenant)
            if known is not None and self._clock.monotonic() - known[0] < FRESH_S:
                return known[1]
            fresh = await overview(database, tenant=tenant)
            self._known[tenant] = (self._clock.monotonic(), fresh)
            return fresh

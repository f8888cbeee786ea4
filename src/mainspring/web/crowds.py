"""How crowded the minutes are, asked for at most once in a while for each tenant, however fast somebody types."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from mainspring.clock import Clock, SystemClock, millis
from mainspring.intake.crowding import Crowd, crowd, quieter_minute
from mainspring.store.db import Database

FRESH_S = 30.0


@dataclass(frozen=True, slots=True)
class Crowding:
    """Executions due in the minute of each fire; if that is many, a quieter minute of the hour and its number."""

    due: list[int]
    complete: bool
    quieter: tuple[int, int] | None


class Crowds:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[int, tuple[float, Crowd]] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def at(self, database: Database, fires: Sequence[datetime], zone: str, *, tenant: int) -> Crowding:
        found = await self.crowd(database, tenant=tenant)
        # Thousands of schedules take tens of milliseconds: not on the loop that claims and settles.
        return await asyncio.to_thread(_look, found, fires, zone)

    async def crowd(self, database: Database, *, tenant: int) -> Crowd:
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            known = self._known.get(tenant)
            if known is not None and self._clock.monotonic() - known[0] < FRESH_S:
                return known[1]
            fresh = await crowd(database, tenant=tenant)
            self._known[tenant] = (self._clock.monotonic(), fresh)
            return fresh


def _look(found: Crowd, fires: Sequence[datetime], zone: str) -> Crowding:
    instants = [millis(fire) for fire in fires]
    minutes = {fire.astimezone(ZoneInfo(zone)).minute for fire in fires}
    quieter = quieter_minute(found, instants, minutes.pop()) if len(minutes) == 1 else None
    return Crowding([found.due_in_minute_of(at) for at in instants], found.complete, quieter)

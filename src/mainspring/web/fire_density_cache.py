"""Executions due per minute, computed at most once in FRESH_S for each tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from mainspring.calculation import calculated
from mainspring.clock import Clock, millis
from mainspring.store.db import Database
from mainspring.ttl_cache import TtlCache
from mainspring.views.fire_density import ScheduleLoads, quieter_minute, tenant_loads

FRESH_S = 30.0


@dataclass(frozen=True, slots=True)
class FireDensity:
    """Executions due in the minute of each fire; if a minute is crowded, a quieter one and its count."""

    due: list[int]
    complete: bool
    quieter: tuple[int, int] | None


class FireDensityCache:
    def __init__(self, clock: Clock | None = None) -> None:
        self._cache: TtlCache[int, ScheduleLoads] = TtlCache(lambda: FRESH_S, clock=clock)

    async def at(self, database: Database, fires: Sequence[datetime], zone: str, *, tenant: int) -> FireDensity:
        found = await self.loads(database, tenant=tenant)
        # Thousands of schedules take tens of milliseconds, too long for the event loop that claims and settles.
        return await calculated(_density, found, fires, zone)

    async def loads(self, database: Database, *, tenant: int) -> ScheduleLoads:
        return await self._cache.get(tenant, lambda: tenant_loads(database, tenant=tenant))


def _density(found: ScheduleLoads, fires: Sequence[datetime], zone: str) -> FireDensity:
    instants = [millis(fire) for fire in fires]
    minutes = {fire.astimezone(ZoneInfo(zone)).minute for fire in fires}
    quieter = quieter_minute(found, instants, minutes.pop()) if len(minutes) == 1 else None
    return FireDensity([found.due_in_minute_of(at) for at in instants], found.complete, quieter)

"""The overview of each tenant, computed at most once a second."""

from __future__ import annotations

from mainspring.api.context import Context
from mainspring.clock import Clock
from mainspring.ttl_cache import TtlCache
from mainspring.views.overview import Overview, overview

FRESH_S = 1.0


class OverviewCache:
    def __init__(self, clock: Clock | None = None) -> None:
        self._cache: TtlCache[int, Overview] = TtlCache(lambda: FRESH_S, clock=clock)

    async def overview(self, context: Context, *, tenant: int) -> Overview:
        return await self._cache.get(tenant, lambda: overview(context.database, context.run_views, tenant=tenant))

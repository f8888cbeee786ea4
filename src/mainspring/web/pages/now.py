"""The start page: health, next fires, latest executions and the last 24 hours."""

from __future__ import annotations

from starlette.responses import Response

from mainspring.views.overview import verdict
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_history_cache import FireHistoryCache
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.render import now, page

EXECUTIONS_SHOWN = 25


class NowPage:
    """GET /."""

    def __init__(self, overview: OverviewCache, history: FireHistoryCache) -> None:
        self._overview, self._history = overview, history

    async def __call__(self, request: PageRequest) -> Response:
        database, tenant = request.context.database, request.caller.tenant
        seen = await self._overview.overview(database, tenant=tenant)
        well, sentence = verdict(seen)
        bars = await self._history.bars(database, now(), tenant=tenant)
        return page(
            "now.html",
            request.caller,
            seen=seen,
            well=well,
            sentence=sentence,
            bars=bars,
            feed=seen.recent[:EXECUTIONS_SHOWN],
        )

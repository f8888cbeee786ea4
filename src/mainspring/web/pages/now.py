"""The first page: is all well, what fires next, what happened in the last day."""

from __future__ import annotations

from starlette.responses import Response

from mainspring.views.overview import verdict
from mainspring.web.access import Visit
from mainspring.web.fire_history import Pasts
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.pages.jobs import FEED_SHOWN
from mainspring.web.render import now, page


class First:
    """Its numbers are shared by everyone who looks at the same moment."""

    def __init__(self, pulse: OverviewCache, pasts: Pasts) -> None:
        self._pulse, self._pasts = pulse, pasts

    async def __call__(self, visit: Visit) -> Response:
        database, tenant = visit.context.database, visit.caller.tenant
        seen = await self._pulse.overview(database, tenant=tenant)
        well, sentence = verdict(seen)
        bars = await self._pasts.bars(database, now(), tenant=tenant)
        return page(
            "now.html", visit.caller, seen=seen, well=well, sentence=sentence, bars=bars, feed=seen.recent[:FEED_SHOWN]
        )

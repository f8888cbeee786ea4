"""The first page: is all well, what fires next, what happened in the last day."""

from __future__ import annotations

from starlette.responses import Response

from mainspring.intake.overview import verdict
from mainspring.web.gate import Visit
from mainspring.web.pages import FEED_SHOWN
from mainspring.web.pasts import Pasts
from mainspring.web.pulse import Pulse
from mainspring.web.render import now, page


class First:
    """Its numbers are shared by everyone who looks at the same moment."""

    def __init__(self, pulse: Pulse, pasts: Pasts) -> None:
        self._pulse, self._pasts = pulse, pasts

    async def __call__(self, visit: Visit) -> Response:
        database, tenant = visit.context.database, visit.caller.tenant
        seen = await self._pulse.overview(database, tenant=tenant)
        well, sentence = verdict(seen)
        bars = await self._pasts.bars(database, now(), tenant=tenant)
        return page(
            "now.html", visit.caller, seen=seen, well=well, sentence=sentence, bars=bars, feed=seen.recent[:FEED_SHOWN]
        )

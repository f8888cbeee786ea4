"""The start page: what needs an operator, what runs, what fires next, and the latest executions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from mainspring.intake.runs import StepRights
from mainspring.views.verdict import verdict
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_history_cache import FireHistoryCache
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.pages.run_panel import rights_in
from mainspring.web.render import fragment, now, page

EXECUTIONS_SHOWN = 25
FRAGMENTS = ("verdict", "needs_you", "active", "small_charts", "upcoming")
"""Macros of the page that the stream renders again, in their order on the page."""


class NowPage:
    """GET /."""

    def __init__(self, overview: OverviewCache, history: FireHistoryCache) -> None:
        self._overview, self._history = overview, history

    async def __call__(self, request: PageRequest) -> Response:
        values = await self.values(request)
        return page("now.html", request.caller, **values, feed=values["seen"].recent[:EXECUTIONS_SHOWN])

    async def values(self, request: PageRequest) -> dict[str, Any]:
        """Return what every macro of the page takes."""
        seen = await self._overview.overview(request.context, tenant=request.caller.tenant)
        bars = await self._history.bars(request.context.database, now(), tenant=request.caller.tenant)
        rights: dict[tuple[UUID, str], StepRights] = {}
        for p in seen.attention.approvals:
            own = await rights_in(request, p.run_id, [p.step], job_id=p.job_id, version=p.version)
            rights[p.run_id, p.step] = own[p.step]
        return {"seen": seen, "judged": verdict(seen), "bars": bars, "rights": rights}

    async def fragments(self, request: PageRequest) -> tuple[str, dict[str, Any]]:
        """Return the parts of the page that change, and the values they were rendered with."""
        values = await self.values(request)
        return "".join(fragment("now_parts.html", name, request.caller, **values) for name in FRAGMENTS), values

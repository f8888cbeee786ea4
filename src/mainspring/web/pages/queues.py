"""The list of queues: depth, rates, limits in use; pause and resume."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring.intake.queues import change as change_queue
from mainspring.views import queues as views
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import fragment, page


async def queues(request: PageRequest) -> Response:
    """GET /queues."""
    return page("queues.html", request.caller, **await _values(request))


async def queue_tables(request: PageRequest) -> str:
    """Render the tables again, for the live stream."""
    return fragment("queue_parts.html", "queue_tables", request.caller, **await _values(request))


async def pause(request: PageRequest) -> Response:
    """POST /queues/{ref}/pause."""
    return await _set_paused(request, True)


async def resume(request: PageRequest) -> Response:
    """POST /queues/{ref}/resume."""
    return await _set_paused(request, False)


async def _values(request: PageRequest) -> dict[str, Any]:
    database, tenant = request.context.database, request.caller.tenant
    found = await views.overview(database, tenant=tenant)
    return {"queues": found.items, "limits": found.limits, "rates": await views.flow(database, tenant=tenant)}


async def _set_paused(request: PageRequest, paused: bool) -> Response:
    await change_queue(
        request.context.database, request.ref, {"paused": paused}, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse(f"/queues#q-{quote(request.ref)}", 303, render.HEADERS)

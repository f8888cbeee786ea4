"""The list of queues: depth, rates, limits in use; pause and resume."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.intake import duration_requests
from mainspring.intake.queues import change as change_queue
from mainspring.store.duration_requests import list_duration_requests
from mainspring.views import audit as audit_views
from mainspring.views import queues as views
from mainspring.views.queue_history import depth_history
from mainspring.web import render
from mainspring.web.draw.depth_chart import depth_charts
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.actions import reason_of
from mainspring.web.render import fragment, page

MAX_REQUESTS = 50
"""Undecided requests for longer timeouts that are shown."""
MAX_REASONS = 20
"""Paused queues whose reason is shown."""


async def queues(request: PageRequest) -> Response:
    """GET /queues."""
    return page("queues.html", request.caller, **await _values(request), requests=await _undecided(request))


async def queue_tables(request: PageRequest) -> str:
    """Render the tables again, for the live stream."""
    return fragment("queue_parts.html", "queue_tables", request.caller, **await _values(request))


async def pause(request: PageRequest) -> Response:
    """POST /queues/{ref}/pause."""
    return await _set_paused(request, True)


async def resume(request: PageRequest) -> Response:
    """POST /queues/{ref}/resume."""
    return await _set_paused(request, False)


async def decide_duration(request: PageRequest) -> Response:
    """POST /queues/duration-requests/{ref}: approves or refuses a timeout above the maximum of a queue."""
    await duration_requests.decide(
        request.context.database,
        request.ref,
        approved=request.form.get("approved") == "yes",
        note=reason_of(request),
        tenant=request.caller.tenant,
        by=request.caller.name,
    )
    return RedirectResponse("/queues#duration-requests", 303, render.HEADERS)


async def _values(request: PageRequest) -> dict[str, Any]:
    database, tenant = request.context.database, request.caller.tenant
    found = await views.overview(database, tenant=tenant)
    paused = [q.name for q in found.items if q.settings.paused][:MAX_REASONS]
    return {
        "queues": found.items,
        "limits": found.limits,
        "rates": await views.flow(database, tenant=tenant),
        "charts": depth_charts(await depth_history(database, tenant=tenant)),
        "pauses": {name: await _pause(request, name) for name in paused},
    }


async def _undecided(request: PageRequest) -> list[tuple[wire.DurationRequest, bool]]:
    """Requests for longer timeouts, each with whether the reader may approve it."""
    caller = request.caller
    async with request.context.database.connection() as connection:
        rows = await list_duration_requests(
            connection, tenant=caller.tenant, limit=MAX_REQUESTS, state="requested", before=None
        )
    may_decide = caller.may_exceed and not caller.is_restricted
    return [
        (duration_requests.shown(row), may_decide and duration_requests.may_approve(row, caller.name)) for row in rows
    ]


async def _pause(request: PageRequest, name: str) -> wire.AuditEntry | None:
    """The latest change of a queue in the audit log: of a paused one, its pause."""
    found = await audit_views.list_entries(
        request.context.database, tenant=request.caller.tenant, subject=name, action="queue.change", limit=1
    )
    return found.items[0] if found.items else None


async def _set_paused(request: PageRequest, paused: bool) -> Response:
    await change_queue(
        request.context.database, request.ref, {"paused": paused}, tenant=request.caller.tenant, by=request.caller.name,
        reason=reason_of(request) or None,
    )  # fmt: skip
    return RedirectResponse(f"/queues#q-{quote(request.ref)}", 303, render.HEADERS)

"""Tenants with their quotas and shares, for cluster administrators."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring.api.tenants import tenants_of
from mainspring.intake import tenants as intake
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import page


async def tenants(request: PageRequest) -> Response:
    """GET /settings/tenants."""
    found = await tenants_of(request.context.database, after=request.query("after"), limit=refs.MAX_PAGE)
    return page("tenants.html", request.caller, tenants=found.items, after=found.next_cursor)


async def suspend(request: PageRequest) -> Response:
    """POST /settings/tenants/{ref}/suspend."""
    reason = request.form.get("reason", "").strip()[:1000]
    caller = request.caller
    affected = await intake.suspend(
        request.context.database, request.ref, reason, in_tenant=caller.tenant, by=caller.name
    )
    for token_id in affected:
        request.context.streams.announce_end(token_id)
    return RedirectResponse("/settings/tenants", 303, render.HEADERS)


async def resume(request: PageRequest) -> Response:
    """POST /settings/tenants/{ref}/resume."""
    caller = request.caller
    affected = await intake.unsuspend(request.context.database, request.ref, in_tenant=caller.tenant, by=caller.name)
    for token_id in affected:
        request.context.streams.announce_end(token_id)
    return RedirectResponse("/settings/tenants", 303, render.HEADERS)

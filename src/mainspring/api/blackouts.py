"""Routes of blackouts."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import blackouts
from mainspring.views import blackouts as blackout_views

table = Table()
BLACKOUTS = "/api/v1/blackouts"


@table.route("GET", BLACKOUTS, scope="read", response=wire.Page[wire.Blackout], query=("limit", "cursor"))
async def list_blackouts(call: Call) -> wire.Page[wire.Blackout]:
    """List blackouts, newest first."""
    return await blackout_views.list_blackouts(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 500)
    )


@table.route("POST", BLACKOUTS, scope="write", body=wire.NewBlackout, response=wire.Blackout, status=201, creates=True)
async def create(call: Call) -> wire.Blackout:
    """Create a blackout: while it is active, no fire starts."""
    return await blackouts.create(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("DELETE", BLACKOUTS + "/{blackout_id}", scope="write", status=204)
async def delete(call: Call) -> None:
    """End a blackout; fires that it held back start."""
    await blackouts.delete(call.context.database, call.path("blackout_id"), tenant=call.tenant, by=call.caller.name)

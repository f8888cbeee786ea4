"""Routes of backfills."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.intake import backfills
from mainspring.views import backfills as backfill_views
from mainspring.views import refs

table = Table()
BACKFILLS = "/api/v1/backfills"
BACKFILL = BACKFILLS + "/{backfill_id}"


@table.route(
    "POST",
    "/api/v1/jobs/{ref}/backfill",
    scope="write",
    body=wire.BackfillRequest,
    response=wire.Backfill,
    status=201,
    creates=True,
)
async def create(call: Call) -> Response | wire.Backfill:
    """Execute a range of a job's past fires.

    With `dry_run`, nothing is written and the response is a BackfillPlan.
    """
    database, body = call.context.database, call.body
    if body.dry_run:
        plan = await backfills.plan(database, call.path("ref"), body, tenant=call.tenant)
        return Response(encode(plan), media_type="application/json")
    backfill_id = await backfills.create(database, call.path("ref"), body, tenant=call.tenant, by=call.caller.name)
    found = await backfill_views.get(database, backfill_id, tenant=call.tenant)
    return Response(encode(found), 201, {"Location": f"{BACKFILLS}/{backfill_id}"}, media_type="application/json")


@table.route("GET", BACKFILLS, scope="read", response=wire.Page[wire.Backfill], query=("job", "limit", "cursor"))
async def list_backfills(call: Call) -> wire.Page[wire.Backfill]:
    """List backfills, newest first, without `executions`."""
    return await backfill_views.list_backfills(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.query("job"),
    )


@table.route("GET", BACKFILL, scope="read", response=wire.Backfill)
async def get(call: Call) -> wire.Backfill:
    """Get a backfill with the number of executions in each state."""
    return await _found(call)


@table.route("POST", BACKFILL + "/pause", scope="write", response=wire.Backfill)
async def pause(call: Call) -> wire.Backfill:
    """Pause a backfill; executions that it has created continue."""
    await backfills.pause(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


@table.route("POST", BACKFILL + "/resume", scope="write", response=wire.Backfill)
async def resume(call: Call) -> wire.Backfill:
    """Resume a paused backfill."""
    await backfills.resume(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


@table.route("POST", BACKFILL + "/cancel", scope="write", response=wire.Backfill)
async def cancel(call: Call) -> wire.Backfill:
    """End a backfill and cancel its unfinished executions."""
    await backfills.cancel(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


async def _found(call: Call) -> wire.Backfill:
    return await backfill_views.get(call.context.database, _id(call), tenant=call.tenant)


def _id(call: Call) -> UUID:
    text = call.path("backfill_id")
    if not refs.is_id(text):
        raise NotFound(f"there is no backfill {text!r}")
    return UUID(text)

"""Backfills over HTTP."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.intake import backfills
from mainspring.views import refs

table = Table()
BACKFILLS = "/api/v1/backfills"
BACKFILL = BACKFILLS + "/{backfill_id}"


@table.route(
    "POST", "/api/v1/jobs/{ref}/backfill", scope="write", body=wire.BackfillRequest, answer=wire.Backfill, status=201
)
async def create(call: Call) -> Response | wire.Backfill:
    """Execute a range of a job's past instants, once for each Idempotency-Key; `dry_run` only tells which they are."""
    database, body = call.context.database, call.body
    if body.dry_run:
        plan = await backfills.plan(database, call.path("ref"), body, tenant=call.tenant)
        return Response(encode(plan), media_type="application/json")
    backfill_id = await backfills.create(
        database,
        call.path("ref"),
        body,
        tenant=call.tenant,
        by=call.caller.name,
        key=call.request.headers.get("idempotency-key"),
    )
    found = await backfills.get(database, backfill_id, tenant=call.tenant)
    return Response(encode(found), 201, {"Location": f"{BACKFILLS}/{backfill_id}"}, media_type="application/json")


@table.route("GET", BACKFILLS, scope="read", answer=wire.Page[wire.Backfill], query=("job", "limit", "cursor"))
async def list_backfills(call: Call) -> wire.Page[wire.Backfill]:
    """List backfills, newest first; `executions` is told only of one at a time."""
    return await backfills.list_backfills(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.query("job"),
    )


@table.route("GET", BACKFILL, scope="read", answer=wire.Backfill)
async def get(call: Call) -> wire.Backfill:
    """Get a backfill with the states of its executions."""
    return await _found(call)


@table.route("POST", BACKFILL + "/pause", scope="write", answer=wire.Backfill)
async def pause(call: Call) -> wire.Backfill:
    """Make no more executions of a backfill for now; those that live go on."""
    await backfills.pause(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


@table.route("POST", BACKFILL + "/resume", scope="write", answer=wire.Backfill)
async def resume(call: Call) -> wire.Backfill:
    """Go on with a paused backfill."""
    await backfills.resume(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


@table.route("POST", BACKFILL + "/cancel", scope="write", answer=wire.Backfill)
async def cancel(call: Call) -> wire.Backfill:
    """End a backfill: nothing more of it is made, and what lives of it is cancelled."""
    await backfills.cancel(call.context.database, _id(call), tenant=call.tenant, by=call.caller.name)
    return await _found(call)


async def _found(call: Call) -> wire.Backfill:
    return await backfills.get(call.context.database, _id(call), tenant=call.tenant)


def _id(call: Call) -> UUID:
    text = call.path("backfill_id")
    if not refs.is_id(text):
        raise NotFound(f"there is no backfill {text!r}")
    return UUID(text)

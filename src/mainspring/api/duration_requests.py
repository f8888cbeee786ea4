"""Routes of requests for timeouts above the maximum of a queue."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.errors import invalid
from mainspring.intake import duration_requests
from mainspring.intake.validate.queue_bounds import EXCEED_SCOPE
from mainspring.store import duration_requests as request_store
from mainspring.views import refs

table = Table()
REQUESTS = "/api/v1/duration-requests"
STATES = ("requested", "approved", "refused", "withdrawn")


@table.route(
    "GET", REQUESTS, scope="read", response=wire.Page[wire.DurationRequest], query=("state", "limit", "cursor")
)
async def list_requests(call: Call) -> wire.Page[wire.DurationRequest]:
    """List requests for timeouts above the maximum of a queue, newest first."""
    limit = call.number("limit", 100)
    refs.check_limit(limit)
    state = call.query("state")
    if state is not None and state not in STATES:
        raise invalid("/state", f"{state!r} is not a state", hint=", ".join(STATES))
    async with call.context.database.connection() as connection:
        found = await request_store.list_duration_requests(
            connection, tenant=call.tenant, limit=limit + 1, state=state, before=refs.time_cursor(call.query("cursor"))
        )
    last = found[limit - 1] if len(found) > limit else None
    cursor = None if last is None else f"{last.requested_at.isoformat()}_{last.request_id}"
    return wire.Page(items=[duration_requests.shown(row) for row in found[:limit]], next_cursor=cursor)


@table.route(
    "POST",
    REQUESTS,
    scope="write",
    body=wire.NewDurationRequest,
    response=wire.DurationRequest,
    status=201,
    creates=True,
    checks_grants=True,
)
async def create(call: Call) -> wire.DurationRequest:
    """Request that a job may have a timeout above the maximum of a queue."""
    return await duration_requests.create(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route(
    "POST", REQUESTS + "/{ref}/decide", scope=EXCEED_SCOPE, body=wire.DurationDecision, response=wire.DurationRequest
)
async def decide(call: Call) -> wire.DurationRequest:
    """Approve or refuse a request, or revoke an approved one. Who requested it cannot approve it."""
    body: wire.DurationDecision = call.body
    return await duration_requests.decide(
        call.context.database,
        call.path("ref"),
        approved=body.approved,
        note=body.note,
        tenant=call.tenant,
        by=call.caller.name,
    )


@table.route("POST", REQUESTS + "/{ref}/withdraw", scope="write", response=wire.DurationRequest, checks_grants=True)
async def withdraw(call: Call) -> wire.DurationRequest:
    """Withdraw a request of your own that is not decided yet."""
    return await duration_requests.withdraw(
        call.context.database, call.path("ref"), tenant=call.tenant, by=call.caller.name
    )

"""Routes of reserved capacity."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import reservations
from mainspring.views import reservations as reservation_views

table = Table()
RESERVATIONS = "/api/v1/reservations"


@table.route("GET", RESERVATIONS, scope="read", response=wire.Page[wire.Reservation])
async def list_reservations(call: Call) -> wire.Page[wire.Reservation]:
    """List current and future reservations with their workers, earliest first."""
    return await reservation_views.list_reservations(call.context.database, tenant=call.tenant)


@table.route(
    "POST", RESERVATIONS, scope="admin", body=wire.NewReservation, response=wire.Reservation, status=201, creates=True
)
async def create(call: Call) -> wire.Reservation:
    """Reserve worker capacity for a tenant, a queue or a job during a period."""
    return await reservations.create(
        call.context.database,
        call.body,
        tenant=call.tenant,
        by=call.caller.name,
        may_share="shared" in call.caller.scopes,
    )


@table.route("DELETE", RESERVATIONS + "/{name}", scope="admin", status=204)
async def delete(call: Call) -> None:
    """End a reservation; its capacity becomes available to all executions."""
    await reservations.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)

"""Reservations over HTTP."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import reservations

table = Table()
RESERVATIONS = "/api/v1/reservations"


@table.route("GET", RESERVATIONS, scope="read", answer=wire.Page[wire.Reservation])
async def list_reservations(call: Call) -> wire.Page[wire.Reservation]:
    """List reservations that are not over, the next first, with where they are kept."""
    return await reservations.list_all(call.context.database, tenant=call.tenant)


@table.route("POST", RESERVATIONS, scope="admin", body=wire.NewReservation, answer=wire.Reservation, status=201)
async def create(call: Call) -> wire.Reservation:
    """Keep places on workers free for a tenant, a queue or a job, for a time."""
    return await reservations.create(
        call.context.database,
        call.body,
        tenant=call.tenant,
        by=call.caller.name,
        may_share="shared" in call.caller.scopes,
    )


@table.route("DELETE", RESERVATIONS + "/{name}", scope="admin", status=204)
async def delete(call: Call) -> None:
    """End a reservation: its places are anybody's again."""
    await reservations.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)

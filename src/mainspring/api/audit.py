"""Routes of the audit log."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.views import audit as audit_views

table = Table()


@table.route(
    "GET",
    "/api/v1/audit",
    scope="operate",
    response=wire.Page[wire.AuditEntry],
    query=("subject", "actor", "action", "limit", "cursor"),
)
async def list_entries(call: Call) -> wire.Page[wire.AuditEntry]:
    """List audit entries, newest first.

    `actor` is the id or the name of a token, `action` an action such as `run.cancel`, or a kind such as `run`.
    """
    return await audit_views.list_entries(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        subject=call.query("subject"),
        actor=call.query("actor"),
        action=call.query("action"),
    )

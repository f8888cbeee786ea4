"""Routes of the audit log: list, verify and export it."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from mainspring import wire
from mainspring.api.route import Call, Table, bad_query
from mainspring.domain.audit_chain import CLUSTER
from mainspring.domain.errors import Forbidden
from mainspring.store.db import Database
from mainspring.views import audit as audit_views
from mainspring.views import audit_verification

table = Table()
MAX_SEQ = 10**18


@table.route(
    "GET",
    "/api/v1/audit",
    scope="operate",
    response=wire.Page[wire.AuditEntry],
    query=("subject", "actor", "action", "cluster", "limit", "cursor"),
)
async def list_entries(call: Call) -> wire.Page[wire.AuditEntry]:
    """List audit entries, newest first.

    `actor` is the id or the name of a token, `action` an action such as `run.cancel`, or a kind such as `run`. With
    `cluster=true`, cluster administrators list entries that belong to no tenant, such as failed sign-ins.
    """
    return await audit_views.list_entries(
        _database(call),
        tenant=_tenant(call),
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        subject=call.query("subject"),
        actor=call.query("actor"),
        action=call.query("action"),
    )


@table.route(
    "GET",
    "/api/v1/audit:verify",
    scope="operate",
    response=wire.AuditVerification,
    query=("cluster", "head", "cursor"),
)
async def verify(call: Call) -> wire.AuditVerification:
    """Verify the hash chain of the audit log, a part at a time: repeat with `next_cursor` until there is none.

    `head` is an entry and its hash as an outside witness has them: `17:` and 64 hexadecimal digits. With
    `cluster=true`, cluster administrators verify the chain of the cluster.
    """
    return await audit_verification.verify(
        _database(call),
        call.context.vault,
        tenant=_tenant(call),
        cursor=call.query("cursor"),
        witnessed=call.query("head"),
    )


@table.route("GET", "/api/v1/audit:export", scope="operate", query=("cluster", "after"))
async def export(call: Call) -> Response:
    """Export the audit log as JSON lines, oldest first, with hashes and signed heads, for a verification elsewhere.

    `after` begins behind an entry. Entries of the last moments, which are not chained yet, are not included.
    """
    lines = audit_verification.export(
        _database(call), call.context.vault, tenant=_tenant(call), after=call.number("after", 0, most=MAX_SEQ)
    )
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")


def _database(call: Call) -> Database:
    """The connections of a tenant show no entry of the cluster."""
    return call.context.database if _tenant(call) == call.tenant else call.context.database.root


def _tenant(call: Call) -> int:
    """The tenant whose log is read; 0 for that of the cluster, which only its administrators may read."""
    cluster = call.query("cluster")
    if cluster in (None, "false"):
        return call.tenant
    if cluster != "true":
        raise bad_query("cluster", f"unknown value {cluster!r}; use true or false")
    if not call.caller.is_cluster_admin:
        raise Forbidden("only cluster administrators read the audit log of the cluster")
    return CLUSTER

"""Routes of manifests: compare, apply, export, and their JSON Schema."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import apply, wire
from mainspring.api.route import Call, Table, bad_query
from mainspring.apply import Requester
from mainspring.codec import encode
from mainspring.manifest.schema import schema

table = Table()
MANIFESTS = "/api/v1/manifests"
MOST_BYTES = 16_000_000
"""Of one request. The client sends more in several requests."""


@table.route("GET", "/api/manifest.schema.json", scope="read")
async def json_schema(_: Call) -> Response:
    """Get the JSON Schema of manifests, for editors."""
    return Response(encode(schema()), media_type="application/schema+json")


@table.route(
    "GET",
    MANIFESTS,
    scope="read",
    response=wire.Page[wire.ManifestDocument],
    query=("kind", "name", "limit", "cursor"),
)
async def export(call: Call) -> wire.Page[wire.ManifestDocument]:
    """List the objects of a `kind` as manifests, by name; secrets of channels are placeholders."""
    kind = call.query("kind")
    if kind is None:
        raise bad_query("kind", "is required, such as kind=Job")
    return await apply.export_page(
        call.context.database,
        kind,
        tenant=call.tenant,
        name=call.query("name"),
        cursor=call.query("cursor"),
        limit=call.number("limit", 500),
    )


@table.route(
    "POST",
    MANIFESTS + ":diff",
    scope="read",
    body=wire.ApplyManifests,
    response=wire.ManifestPlan,
    limit=MOST_BYTES,
)
async def diff(call: Call) -> wire.ManifestPlan:
    """Compare manifests with what is on the server, and with what was last applied; nothing is written."""
    vault, may_exceed = call.context.vault, call.caller.may_exceed
    requester = Requester(call.tenant, call.caller.name, may_exceed=may_exceed, vault=vault)
    return await apply.diff_manifests(call.context.database, call.body, requester)


@table.route(
    "POST",
    MANIFESTS + ":apply",
    scope="write",
    body=wire.ApplyManifests,
    response=wire.ManifestPlan,
    query=("dry_run",),
    limit=MOST_BYTES,
    creates=True,
)
async def apply_all(call: Call) -> wire.ManifestPlan:
    """Apply manifests in one transaction: all of them or none.

    Queues and reservations need the scope `admin`. With `dry_run=true` everything is checked and rolled back.
    """
    dry_run = call.query("dry_run") or "false"
    if dry_run not in ("true", "false"):
        raise bad_query("dry_run", f"unknown value {dry_run[:40]!r}; use true or false")
    requester = Requester(
        call.tenant,
        call.caller.name,
        scopes=call.caller.scopes,
        may_exceed=call.caller.may_exceed,
        may_share="shared" in call.caller.scopes,
        vault=call.context.vault,
    )
    return await apply.apply_manifests(call.context.database, call.body, requester, dry_run=dry_run == "true")

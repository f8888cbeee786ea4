"""Routes of tenants, for cluster administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring import apply, wire
from mainspring.api.route import Call, Table
from mainspring.api.tokens import issue_for, shown
from mainspring.api.users import role_of, user_of
from mainspring.domain.roles import CLUSTER_SCOPE
from mainspring.intake import tenants
from mainspring.intake.roles import MAX_ROLES
from mainspring.manifest import KINDS
from mainspring.store import principals, roles, tokens
from mainspring.store import tenants as store
from mainspring.store.db import Database
from mainspring.store.tenant_output import output_today
from mainspring.store.tenants import TenantLoad, TenantRow
from mainspring.views import refs

table = Table()
TENANTS = "/api/v1/tenants"
TENANT = TENANTS + "/{name}"
MAX_EXPORTED = 10_000


@table.route("GET", TENANTS, scope=CLUSTER_SCOPE, response=wire.Page[wire.Tenant], query=("limit", "cursor"))
async def list_tenants(call: Call) -> wire.Page[wire.Tenant]:
    """List the tenants by name, with quotas and shares: what each is entitled to, uses and waits for."""
    limit = call.number("limit", 100)
    refs.check_limit(limit)
    return await tenants_of(call.context.database, after=call.query("cursor") or "", limit=limit)


@table.route("POST", TENANTS, scope=CLUSTER_SCOPE, body=wire.NewTenant, response=wire.Tenant, status=201, creates=True)
async def create(call: Call) -> wire.Tenant:
    """Create a tenant. Issue its first token with `POST /api/v1/tenants/{name}/tokens`."""
    settings = _given(call.body)
    name = settings.pop("name")
    row = await tenants.create(call.context.database, name, settings, in_tenant=call.tenant, by=call.caller.name)
    return _shown(row, {}, {})


@table.route("GET", TENANT, scope=CLUSTER_SCOPE, response=wire.Tenant)
async def get(call: Call) -> wire.Tenant:
    """Get a tenant."""
    return await tenant_of(call.context.database, call.path("name"))


@table.route("PATCH", TENANT, scope=CLUSTER_SCOPE, body=wire.TenantSettings, response=wire.Tenant)
async def edit(call: Call) -> wire.Tenant:
    """Change weight, cap and quotas of a tenant. They apply to what is added from now on."""
    name = call.path("name")
    await tenants.change(call.context.database, name, _given(call.body), in_tenant=call.tenant, by=call.caller.name)
    return await tenant_of(call.context.database, name)


@table.route("POST", TENANT + "/suspend", scope=CLUSTER_SCOPE, body=wire.SuspendTenant, response=wire.Tenant)
async def suspend(call: Call) -> wire.Tenant:
    """Suspend a tenant: its requests are refused, and nothing of it fires or starts. What runs continues."""
    name = call.path("name")
    affected = await tenants.suspend(
        call.context.database, name, call.body.reason, in_tenant=call.tenant, by=call.caller.name
    )
    for token_id in affected:
        call.context.streams.announce_end(token_id)
    return await tenant_of(call.context.database, name)


@table.route("POST", TENANT + "/resume", scope=CLUSTER_SCOPE, response=wire.Tenant)
async def resume(call: Call) -> wire.Tenant:
    """Resume a suspended tenant. The misfire policy of each job decides about the fires that it missed."""
    name = call.path("name")
    affected = await tenants.unsuspend(call.context.database, name, in_tenant=call.tenant, by=call.caller.name)
    for token_id in affected:
        call.context.streams.announce_end(token_id)
    return await tenant_of(call.context.database, name)


@table.route("DELETE", TENANT, scope=CLUSTER_SCOPE, status=204)
async def delete(call: Call) -> None:
    """Delete a suspended tenant of which nothing runs. Its history is kept until it expires; export it first."""
    revoked = await tenants.delete(call.context.database, call.path("name"), in_tenant=call.tenant, by=call.caller.name)
    for token_id in revoked:
        call.context.streams.announce_end(token_id)


@table.route("GET", TENANT + "/export", scope=CLUSTER_SCOPE, response=wire.TenantExport)
async def export(call: Call) -> wire.TenantExport:
    """Export a tenant: its settings, its definitions as manifests, its users, roles and tokens without secrets."""
    database = call.context.database
    async with database.connection() as connection:
        row = await tenants.known(connection, call.path("name"))
        users = await principals.list_principals(connection, tenant=row.tenant_id, after="", limit=MAX_EXPORTED)
        own_roles = await roles.list_roles(connection, tenant=row.tenant_id, limit=MAX_ROLES)
        issued = await tokens.list_tokens(connection, tenant=row.tenant_id, limit=MAX_EXPORTED)
    manifests: list[wire.ManifestDocument] = []
    for kind in KINDS:
        cursor = None
        while True:
            page = await apply.export_page(database, kind, tenant=row.tenant_id, cursor=cursor)
            manifests += page.items
            if (cursor := page.next_cursor) is None:
                break
    return wire.TenantExport(
        tenant=await tenant_of(database, row.name),
        manifests=manifests,
        users=[user_of(user) for user in users],
        roles=[role_of(role) for role in own_roles],
        tokens=[shown(line, call.caller) for line in issued],
    )


@table.route(
    "POST",
    TENANT + "/tokens",
    scope=CLUSTER_SCOPE,
    body=wire.NewToken,
    response=wire.IssuedToken,
    status=201,
    creates=True,
)
async def issue_token(call: Call) -> wire.IssuedToken:
    """Issue a token in a tenant, such as the one of its first administrator."""
    async with call.context.database.connection() as connection:
        row = await tenants.known(connection, call.path("name"))
    return await issue_for(call.context, call.caller, call.body, tenant=row.tenant_id)


async def tenants_of(database: Database, *, after: str, limit: int) -> wire.Page[wire.Tenant]:
    async with database.connection() as connection:
        found = await store.list_tenants(connection, after=after, limit=limit + 1)
        loads, output = await store.tenant_loads(connection), await output_today(connection)
    items = [_shown(row, loads, output, found) for row in found[:limit]]
    return wire.Page(items=items, next_cursor=found[limit - 1].name if len(found) > limit else None)


async def tenant_of(database: Database, name: str) -> wire.Tenant:
    async with database.connection() as connection:
        row = await tenants.known(connection, name)
        others = await store.list_tenants(connection, after="", limit=refs.MAX_PAGE)
        loads, output = await store.tenant_loads(connection), await output_today(connection)
    return _shown(row, loads, output, others)


def _given(settings: wire.TenantSettings) -> dict[str, Any]:
    return {k: v for k, v in msgspec.structs.asdict(settings).items() if v is not msgspec.UNSET}


def _shown(
    row: TenantRow,
    loads: Mapping[int, TenantLoad],
    output: Mapping[int, int],
    others: list[TenantRow] | None = None,
) -> wire.Tenant:
    load = loads.get(row.tenant_id, TenantLoad())
    active = sum(other.weight for other in others or () if other.tenant_id in loads)
    running = sum(each.running for each in loads.values())
    return wire.Tenant(
        name=row.name,
        created_at=row.created_at,
        suspended_at=row.suspended_at,
        suspend_reason=row.suspend_reason,
        weight=row.weight,
        cap=row.cap,
        max_jobs=row.max_jobs,
        max_queued=row.max_queued,
        schedules_per_hour=row.schedules_per_hour,
        min_interval_s=row.min_interval_s,
        end_required=row.end_required,
        output_per_day=row.output_per_day,
        keep_history_s=row.keep_history_s,
        output_today=output.get(row.tenant_id, 0),
        share=wire.TenantShare(
            entitled=round(row.weight / active, 4) if row.tenant_id in loads and active else 0.0,
            used=round(load.running / running, 4) if running else 0.0,
            running=load.running,
            waiting=load.waiting,
        ),
    )

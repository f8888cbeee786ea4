"""Create, change, suspend, resume and delete tenants, for cluster administrators.

Requests of a suspended tenant are refused, nothing of it starts, and its jobs are paused for SUSPENDED. At resume, the
misfire policy of each job decides about the fires that it missed.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, NotFound, invalid
from mainspring.intake.jobs.pause import pause, resume
from mainspring.intake.tenant_quotas import SUSPENDED
from mainspring.store import audit, tenants
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.tenants import TenantRow

FIRST_TENANT = 1
NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,62}\Z")
BATCH = 500


async def create(database: Database, name: str, settings: dict[str, Any], *, in_tenant: int, by: str) -> TenantRow:
    if not NAME.match(name):
        raise invalid("/name", f"{name!r} is not a name for a tenant", hint="lower-case letters, digits, '-' and '_'")
    try:
        async with database.transaction() as connection:
            tenant = await tenants.insert_tenant(connection, name=name)
            row = replace(await tenants.lock_tenant(connection, tenant=tenant), **settings)
            await tenants.update_tenant(connection, row)
            await _record(connection, "tenant.create", row, in_tenant=in_tenant, by=by, **settings)
            return row
    except Taken:
        raise Conflict(f"there is a tenant {name!r} already", code="name_taken") from None


async def change(database: Database, name: str, settings: dict[str, Any], *, in_tenant: int, by: str) -> TenantRow:
    """Change weight, cap and quotas. They apply to what is added from now on."""
    async with database.transaction() as connection:
        before = await _locked(connection, name)
        row = replace(before, **settings)
        await tenants.update_tenant(connection, row)
        differences = changes(
            {field: asdict(before)[field] for field in settings}, {field: asdict(row)[field] for field in settings}
        )
        await _record(connection, "tenant.edit", row, in_tenant=in_tenant, by=by, changes=differences)
        return row


async def suspend(database: Database, name: str, reason: str, *, in_tenant: int, by: str) -> list[UUID]:
    """Suspend a tenant; returns its tokens. Repeating it pauses jobs that an interrupted request left."""
    async with database.transaction() as connection:
        row = await _locked(connection, name)
        if row.tenant_id == FIRST_TENANT:
            raise Conflict("the first tenant administers the cluster and cannot be suspended", code="first_tenant")
        if await tenants.suspend_tenant(connection, tenant=row.tenant_id, reason=reason):
            await _record(connection, "tenant.suspend", row, in_tenant=in_tenant, by=by, reason=reason)
        tokens = await tenants.valid_tokens_of_tenant(connection, tenant=row.tenant_id)
    while job_ids := await _jobs(database, row.tenant_id, suspended=False):
        for job_id in job_ids:
            await pause(database, job_id, tenant=row.tenant_id, reason=SUSPENDED, by=by)
    return tokens


async def unsuspend(database: Database, name: str, *, in_tenant: int, by: str) -> list[UUID]:
    """Resume a suspended tenant; returns its tokens. Repeating it resumes jobs that an interrupted request left."""
    async with database.transaction() as connection:
        row = await _locked(connection, name)
        if await tenants.unsuspend_tenant(connection, tenant=row.tenant_id):
            await _record(connection, "tenant.resume", row, in_tenant=in_tenant, by=by)
        tokens = await tenants.valid_tokens_of_tenant(connection, tenant=row.tenant_id)
    while job_ids := await _jobs(database, row.tenant_id, suspended=True):
        for job_id in job_ids:
            await resume(database, job_id, tenant=row.tenant_id, caught_up=True, by=by)
    return tokens


async def delete(database: Database, name: str, *, in_tenant: int, by: str) -> list[UUID]:
    """Delete a suspended tenant that runs nothing; its tokens, which are returned, are revoked."""
    async with database.transaction() as connection:
        row = await _locked(connection, name)
        if row.suspended_at is None:
            raise Conflict(f"suspend the tenant {name!r} before you delete it", code="not_suspended")
        revoked = await tenants.delete_tenant(connection, tenant=row.tenant_id)
        if revoked is None:
            message = f"executions of the tenant {name!r} are running; wait for them, or cancel them"
            raise Conflict(message, code="still_running")
        await _record(connection, "tenant.delete", row, in_tenant=in_tenant, by=by)
        return revoked


async def known(connection: Connection, name: str) -> TenantRow:
    row = await tenants.tenant_by_name(connection, name=name)
    if row is None:
        raise NotFound(f"there is no tenant {name!r}")
    return row


async def _record(
    connection: Connection,
    action: str,
    row: TenantRow,
    *,
    in_tenant: int,
    by: str,
    reason: str | None = None,
    **details: Any,
) -> None:
    """Record an action in the audit logs of the administrator's tenant and of the tenant that it concerns."""
    for tenant in dict.fromkeys((in_tenant, row.tenant_id)):
        await audit.record(connection, action, row.name, tenant=tenant, by=by, name=row.name, reason=reason, **details)


async def _locked(connection: Connection, name: str) -> TenantRow:
    return await tenants.lock_tenant(connection, tenant=(await known(connection, name)).tenant_id)


async def _jobs(database: Database, tenant: int, *, suspended: bool) -> list[UUID]:
    async with database.connection() as connection:
        if suspended:
            return await tenants.jobs_paused_for(connection, tenant=tenant, reason=SUSPENDED, limit=BATCH)
        return await tenants.firing_jobs(connection, tenant=tenant, limit=BATCH)

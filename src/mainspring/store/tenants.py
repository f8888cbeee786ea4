"""Tenants: settings, quotas, suspension."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.placement.isolation import MinIsolation
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class TenantRow:
    tenant_id: int
    name: str
    created_at: datetime
    weight: float
    cap: int | None
    min_isolation: MinIsolation
    suspended_at: datetime | None
    suspend_reason: str | None
    max_jobs: int | None
    max_queued: int | None
    schedules_per_hour: int | None
    min_interval_s: float | None
    end_required: bool
    output_per_day: int | None
    keep_history_s: float | None


@dataclass(frozen=True, slots=True)
class DefinitionQuotas:
    """Quotas that limit the definitions of a tenant."""

    max_jobs: int | None
    min_interval_s: float | None
    end_required: bool


@dataclass(frozen=True, slots=True)
class TenantLoad:
    running: int = 0
    waiting: int = 0


async def insert_tenant(connection: Connection, *, name: str) -> int:
    """Add a tenant. Raises `Taken` if the name is in use."""
    return int(await connection.fetchval(q("insert_tenant"), name))


async def list_tenants(connection: Connection, *, after: str, limit: int) -> list[TenantRow]:
    return [_row(r) for r in await connection.fetch(q("list_tenants"), after, limit)]


async def tenant_by_name(connection: Connection, *, name: str) -> TenantRow | None:
    row = await connection.fetchrow(q("tenant_by_name"), name)
    return None if row is None else _row(row)


async def tenant_name(connection: Connection, *, tenant: int) -> str:
    return str(await connection.fetchval(q("tenant_name"), tenant))


async def lock_tenant(connection: Connection, *, tenant: int) -> TenantRow:
    """A tenant; its row is locked until the end of the transaction."""
    return _row(await connection.fetchrow(q("lock_tenant_row"), tenant))


async def share_tenant(connection: Connection, *, tenant: int) -> bool:
    """Whether a tenant is suspended; a suspension waits for the end of the transaction, other shares do not."""
    return bool(await connection.fetchval(q("share_tenant"), tenant))


async def limits_queue(connection: Connection, *, tenant: int) -> bool:
    """Whether a tenant has a quota of executions that have not started."""
    return bool(await connection.fetchval(q("limits_queue"), tenant))


async def tenant_quotas(connection: Connection, *, tenant: int) -> DefinitionQuotas:
    row = await connection.fetchrow(q("tenant_quotas"), tenant)
    assert row is not None, "a token has a tenant"
    return DefinitionQuotas(row["max_jobs"], row["min_interval_s"], row["end_required"])


async def update_tenant(connection: Connection, row: TenantRow) -> None:
    """Write weight, cap and quotas; dispatchers learn of it after the commit."""
    await connection.execute(
        q("update_tenant"),
        row.tenant_id,
        row.weight,
        row.cap,
        row.max_jobs,
        row.max_queued,
        row.schedules_per_hour,
        row.min_interval_s,
        row.end_required,
        row.output_per_day,
        row.keep_history_s,
    )
    hint(connection, ports.SETTINGS, str(row.tenant_id))


async def suspend_tenant(connection: Connection, *, tenant: int, reason: str) -> bool:
    """Suspend a tenant; False if it is suspended already."""
    at = await connection.fetchval(q("suspend_tenant"), tenant, reason)
    hint(connection, ports.SETTINGS, str(tenant))
    return at is not None


async def unsuspend_tenant(connection: Connection, *, tenant: int) -> bool:
    """End the suspension of a tenant; False if it is not suspended."""
    found = await connection.fetchval(q("unsuspend_tenant"), tenant)
    hint(connection, ports.SETTINGS, str(tenant))
    return found is not None


async def delete_tenant(connection: Connection, *, tenant: int) -> list[UUID] | None:
    """Mark a suspended tenant as deleted; returns its revoked tokens, or None if executions run."""
    revoked = [r["token_id"] for r in await connection.fetch(q("delete_tenant"), tenant)]
    return revoked if await connection.fetchval(q("tenant_is_deleted"), tenant) else None


async def valid_tokens_of_tenant(connection: Connection, *, tenant: int) -> list[UUID]:
    return [r["token_id"] for r in await connection.fetch(q("valid_tokens_of_tenant"), tenant)]


async def suspended_tenants(connection: Connection) -> frozenset[int]:
    """Tenants of which nothing may start. Over all tenants: for dispatchers."""
    return frozenset(r["tenant_id"] for r in await connection.fetch(q("suspended_tenants")))


async def count_jobs(connection: Connection, *, tenant: int) -> int:
    return int(await connection.fetchval(q("count_jobs"), tenant))


async def count_pending(connection: Connection, *, tenant: int, most: int) -> int:
    return int(await connection.fetchval(q("count_pending"), tenant, most))


async def firing_jobs(connection: Connection, *, tenant: int, limit: int) -> list[UUID]:
    return [r["job_id"] for r in await connection.fetch(q("firing_jobs"), tenant, limit)]


async def jobs_paused_for(connection: Connection, *, tenant: int, reason: str, limit: int) -> list[UUID]:
    return [r["job_id"] for r in await connection.fetch(q("jobs_paused_for"), tenant, reason, limit)]


async def tenant_loads(connection: Connection) -> dict[int, TenantLoad]:
    """Running and waiting executions by tenant. Over all tenants: for cluster administrators."""
    return {r["tenant_id"]: TenantLoad(r["running"], r["waiting"]) for r in await connection.fetch(q("tenant_loads"))}


def _row(row: Any) -> TenantRow:
    return TenantRow(**dict(row))

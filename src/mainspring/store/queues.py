"""Queue and tenant settings, caps, and queue depths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports
from mainspring.domain.placement.isolation import MinIsolation, strongest
from mainspring.domain.queue import QueueSettings
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


class Depth(msgspec.Struct, frozen=True):
    """Queued executions of one line and priority, counted up to a bound."""

    line_id: int
    tenant: int
    queue: str
    priority: int
    depth: int
    oldest_s: float
    exact: bool = True


async def upsert_queue(connection: Connection, *, tenant: int, name: str, settings: QueueSettings, by: str) -> None:
    await connection.execute(
        q("upsert_queue"),
        tenant,
        name,
        settings.cap,
        settings.lease_s,
        settings.patience_s,
        settings.placement,
        list(settings.may_help),
        settings.paused,
        by,
        settings.max_duration_s,
        settings.min_isolation,
    )
    hint(connection, ports.SETTINGS, str(tenant))


async def lock_queue(connection: Connection, *, tenant: int, name: str) -> QueueSettings:
    row = await connection.fetchrow(q("lock_queue"), tenant, name)
    return QueueSettings() if row is None else _settings(row)


async def queue_settings(connection: Connection, *, tenant: int) -> dict[str, QueueSettings]:
    return {r["name"]: _settings(r) for r in await connection.fetch(q("queue_settings"), tenant)}


async def all_queue_settings(connection: Connection) -> dict[tuple[int, str], QueueSettings]:
    """Over all tenants: for dispatchers, which serve every tenant."""
    return {(r["tenant_id"], r["name"]): _settings(r) for r in await connection.fetch(q("all_queue_settings"))}


async def tenant_shares(connection: Connection) -> dict[int, tuple[float, int | None]]:
    """Return (weight, cap) where they are not the defaults. Over all tenants: for dispatchers."""
    return {r["tenant_id"]: (r["weight"], r["cap"]) for r in await connection.fetch(q("tenant_shares"))}


async def tenant_isolations(connection: Connection) -> dict[int, MinIsolation]:
    """Return the minimum isolation of tenants that have one. Over all tenants: for dispatchers."""
    return {r["tenant_id"]: r["min_isolation"] for r in await connection.fetch(q("tenant_isolations"))}


async def min_isolation(connection: Connection, *, tenant: int, queue: str) -> MinIsolation:
    """Return the minimum isolation in a queue: its own or its tenant's, the stronger of both."""
    row = await connection.fetchrow(q("min_isolation"), tenant, queue)
    return "none" if row is None else strongest(row["of_tenant"], row["of_queue"])


async def set_tenant_isolation(connection: Connection, *, tenant: int, minimum: MinIsolation) -> MinIsolation:
    """Write a tenant's minimum isolation; return the one before."""
    before: MinIsolation = await connection.fetchval(q("set_tenant_isolation"), tenant, minimum)
    hint(connection, ports.SETTINGS, str(tenant))
    return before


async def set_tenant_share(connection: Connection, *, tenant: int, weight: float, cap: int | None) -> None:
    await connection.execute(q("set_tenant_share"), tenant, weight, cap)
    hint(connection, ports.SETTINGS, str(tenant))


async def lock_caps(
    connection: Connection, *, queues: Sequence[tuple[int, str]]
) -> tuple[dict[tuple[int, str], int], dict[int, int]]:
    """Return the caps of these queues and of their tenants, locked until the end of the transaction."""
    rows = await connection.fetch(q("lock_queue_caps"), [t for t, _ in queues], [name for _, name in queues])
    tenants = await connection.fetch(q("lock_tenant_caps"), sorted({t for t, _ in queues}))
    return {(r["tenant_id"], r["name"]): r["cap"] for r in rows}, {r["tenant_id"]: r["cap"] for r in tenants}


async def count_running(connection: Connection, *, tenants: Sequence[int]) -> dict[tuple[int, str], int]:
    """Count running executions by tenant and queue. The caller has locked the caps."""
    return {(r["tenant_id"], r["queue"]): r["n"] for r in await connection.fetch(q("count_running"), list(tenants))}


async def line_depths(connection: Connection, *, tenant: int | None, most: int) -> list[Depth]:
    """Return the depths of one tenant. None: over all tenants, for metrics."""
    return [
        Depth(
            r["line_id"],
            r["tenant_id"],
            r["queue"],
            r["priority"],
            r["n"],
            max(0.0, (r["now"] - r["oldest_at"]).total_seconds()),
        )
        for r in await connection.fetch(q("line_depths"), tenant, most)
    ]


async def queued_estimate(connection: Connection) -> int:
    return int(await connection.fetchval(q("queued_estimate")))


async def limited_keys(connection: Connection, *, tenant: int, limit: int) -> list[int]:
    return [r["limit_id"] for r in await connection.fetch(q("limited_keys"), tenant, limit)]


def _settings(r: Any) -> QueueSettings:
    paused_at: datetime | None = r["paused_at"]
    return QueueSettings(
        cap=r["cap"],
        lease_s=r["lease_s"],
        patience_s=r["patience_s"],
        placement=r["placement"],
        may_help=tuple(r["may_help"]),
        paused=paused_at is not None,
        max_duration_s=r["max_duration_s"],
        min_isolation=r["min_isolation"],
    )


class Flow(msgspec.Struct, frozen=True):
    """Executions per minute that entered a queue, and that ended."""

    entered: float
    ended: float


async def queue_flow(
    connection: Connection, *, tenant: int, since: UUID, until: UUID, most: int, seconds: float
) -> dict[str, Flow]:
    """Return the flow by queue, of executions with ids in `[since, until)`.

    At most `most` rows are read; then the rates cover the shorter time span read.
    """
    found = {}
    for r in await connection.fetch(q("queue_flow"), tenant, since, most, seconds, until):
        minutes = (min(r["span_s"], seconds) if r["bounded"] else seconds) / 60
        found[r["queue"]] = Flow(r["entered"] / max(minutes, 1 / 60), r["left_it"] / max(minutes, 1 / 60))
    return found

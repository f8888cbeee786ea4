"""Jobs that need others: executed when all of these have succeeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Child:
    """A job whose needs are met; `not_run` are those that a person skipped."""

    job_id: UUID
    tenant: int
    parents: list[str]
    not_run: list[str]


async def lock_tenant(connection: Connection, *, tenant: int) -> None:
    await connection.execute(q("lock_tenant"), tenant)


async def way_between(connection: Connection, *, tenant: int, start: UUID, end: UUID) -> list[str] | None:
    found: list[str] | None = await connection.fetchval(q("way_between"), tenant, start, end)
    return found


async def insert_need(
    connection: Connection, *, tenant: int, child: UUID, parent: UUID, timeout_s: float | None, by: str
) -> None:
    await connection.execute(q("insert_need"), child, parent, tenant, timeout_s, by)


async def delete_need(connection: Connection, *, tenant: int, child: UUID, parent: UUID) -> bool:
    return await connection.fetchval(q("delete_need"), child, parent, tenant) is not None


async def needs_of(connection: Connection, *, tenant: int, child: UUID) -> list[wire.Dependency]:
    return [_dependency(r) for r in await connection.fetch(q("needs_of"), child, tenant)]


async def related_needs(connection: Connection, *, tenant: int, job_id: UUID) -> list[tuple[str, str]]:
    """Child and parent of each need that hangs together with a job."""
    return [(r["child"], r["parent"]) for r in await connection.fetch(q("related_needs"), job_id, tenant)]


async def ready_children(connection: Connection, *, limit: int, child: UUID | None = None) -> list[Child]:
    """Over all tenants: whose each is comes with it."""
    rows = await connection.fetch(q("ready_children"), child, limit)
    return [Child(r["child_id"], r["tenant_id"], r["parents"], r["not_run"] or []) for r in rows]


async def use_up_needs(connection: Connection, *, tenant: int, child: UUID) -> None:
    await connection.execute(q("use_up_needs"), child, tenant)


async def free_needs(connection: Connection, *, tenant: int, parent: UUID, freed_as: str, by: str, reason: str) -> int:
    """How many jobs need it."""
    return len(await connection.fetch(q("free_needs"), parent, tenant, freed_as, by, reason))


async def has_needs(connection: Connection) -> bool:
    """Over all tenants: whether the duty has anything to look for."""
    return bool(await connection.fetchval(q("has_needs")))


def _dependency(r: Any) -> wire.Dependency:
    freed = r["freed_at"] is not None and r["freed_at"] > r["since_at"]
    state: Any = "pending"
    if freed or (r["succeeded_at"] is not None and not r["stale"]):
        state = "satisfied"
    elif r["stale"]:
        state = "stale"
    elif r["last_state"] is not None:
        state = "failed"
    return wire.Dependency(
        job=r["name"], job_id=r["parent_id"], state=state, since_at=r["since_at"], succeeded_at=r["succeeded_at"],
        timeout_s=r["timeout_s"], created_by=r["created_by"], freed_at=r["freed_at"], freed_as=r["freed_as"],
        freed_by=r["freed_by"], reason=r["reason"],
    )  # fmt: skip

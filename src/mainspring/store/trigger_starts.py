"""Which trigger and delivery started an execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.store.db import Connection, database_now_ms
from mainspring.store.queries import q

CREATED_BY = "trigger "
"""How `created_by` of such an execution begins."""


async def record_start(
    connection: Connection,
    *,
    tenant: int,
    execution_id: UUID,
    job_id: UUID,
    trigger_id: UUID,
    name: str,
    kind: str,
    key: str,
    event: str | None,
) -> None:
    await connection.execute(q("record_start"), execution_id, tenant, job_id, trigger_id, name, kind, key, event)


async def starts_of(
    connection: Connection, *, tenant: int, created_by: Mapping[UUID, str | None]
) -> dict[UUID, wire.StartedBy]:
    """Return the triggers that started some executions; only those that a trigger created are read."""
    wanted = [execution_id for execution_id, by in created_by.items() if (by or "").startswith(CREATED_BY)]
    if not wanted:
        return {}
    rows = await connection.fetch(q("starts_of"), wanted, tenant)
    return {r["execution_id"]: started_by(r) for r in rows}


def started_by(r: Any) -> wire.StartedBy:
    return wire.StartedBy(
        trigger_id=r["trigger_id"],
        trigger=r["name"],
        kind=r["kind"],
        delivery=r["key"],
        event=r["event"],
        execution_id=UUID(r["key"]) if r["kind"] == "completion" else None,
    )


async def forget_starts(connection: Connection, *, after_s: float, limit: int) -> None:
    """Delete what started executions that have left the history. Ids begin with the instant."""
    now_ms = int(await database_now_ms(connection))
    before = UUID(int=max(0, now_ms - int(after_s * 1000)) << 80)
    await connection.execute(q("forget_starts"), before, limit)

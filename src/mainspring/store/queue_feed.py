"""Ready executions for a queue engine, and the claim of those that it has named."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.store.claims import Claimed, Position
from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.wire.ready_execution import ReadyExecution


async def ready_executions(
    connection: Connection, *, lines: Sequence[tuple[int, Position, int]]
) -> list[ReadyExecution]:
    """Return the first queued executions of each line: (id, after, most). Over all tenants: each is in its line."""
    rows = await connection.fetch(
        q("ready_executions"),
        [line[0] for line in lines],
        [line[1][0] for line in lines],
        [line[1][1] for line in lines],
        [line[2] for line in lines],
    )
    return [
        ReadyExecution(
            version=1,
            execution_id=r["execution_id"],
            job_id=r["job_id"],
            tenant=r["tenant"],
            task=r["task"],
            params=r["params"],
            estimated_duration=None,
            shard_id=r["shard"],
            scheduled_time=r["fire_at"],
            priority=r["priority"],
            line=r["line_id"],
            rank=r["rank"],
        )
        for r in rows
    ]


async def claim_ids(
    connection: Connection,
    *,
    tenant: int,
    line_id: int,
    execution_ids: Sequence[UUID],
    sessions: Sequence[UUID],
    slot_order: Sequence[int],
) -> list[Claimed]:
    """Claim those of the executions that are still queued in this line of this tenant; like `claims.claim`."""
    rows: list[Claimed] = await connection.fetch(
        q("claim_ids"), sessions, slot_order, line_id, execution_ids, tenant, "queued"
    )
    return rows

"""How far triggers of kind `topic` have read, and their lag."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.store.triggers import TriggerRow, trigger_row


@dataclass(frozen=True, slots=True)
class TopicTrigger:
    """A trigger that reads a topic, with the name of its tenant."""

    trigger: TriggerRow
    tenant_name: str


async def topic_triggers(connection: Connection, *, limit: int) -> list[TopicTrigger]:
    """Active triggers of all tenants: every scheduler process reads for all of them."""
    rows = await connection.fetch(q("topic_triggers"), limit)
    return [TopicTrigger(trigger_row(r, delivery=False), r["tenant_name"]) for r in rows]


async def topic_position(
    connection: Connection, *, tenant: int, trigger_id: UUID, topic_key: str, partition: int
) -> int | None:
    """Return the offset of the first message that is not decided; None: none of this partition was."""
    found: int | None = await connection.fetchval(q("topic_position"), trigger_id, tenant, topic_key, partition)
    return found


async def move_position(
    connection: Connection,
    *,
    tenant: int,
    trigger_id: UUID,
    topic_key: str,
    partition: int,
    before: int | None,
    after: int,
) -> bool:
    """Move a position; False: another process has moved it since it was read. The row stays locked."""
    row = await connection.fetchrow(q("move_position"), trigger_id, tenant, topic_key, partition, before, after)
    return row is not None


async def topic_read(
    connection: Connection, *, tenant: int, trigger_id: UUID, problem: str | None, lag: int | None = None
) -> None:
    await connection.execute(q("topic_read"), trigger_id, tenant, problem, lag)


async def topic_lags(connection: Connection, *, tenant: int) -> dict[str, int]:
    """Return how many executions the messages that wait would start, by queue."""
    return {r["queue"]: r["waiting"] for r in await connection.fetch(q("topic_lags"), tenant)}


async def forget_positions(connection: Connection, *, limit: int) -> None:
    """Over all tenants: a leader duty."""
    await connection.execute(q("forget_positions"), limit)

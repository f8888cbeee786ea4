"""The outbox: notifications written in the transaction of their change, and the state of their delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mainspring import ports, wire
from mainspring.domain.metadata import contact_fields
from mainspring.store.channels import StoredTarget, stored_target
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Message:
    """One event for one channel. `event_id` is the same at every try."""

    message_id: int
    event_id: UUID
    tenant: int
    event: str
    body: dict[str, Any]
    tries: int
    created_at: datetime
    tried_at: datetime
    stored: StoredTarget

    @property
    def channel_id(self) -> UUID:
        return self.stored.channel_id

    @property
    def channel(self) -> str:
        return self.stored.channel

    @property
    def kind(self) -> str:
        return self.stored.kind


StreamKey = tuple[UUID, str]
"""A channel and a stream."""
FIRST_STREAM: StreamKey = (UUID(int=0), "")


@dataclass(frozen=True, slots=True)
class StreamHead:
    """The oldest pending message of a channel and stream; due when `wait_s` is 0 or less."""

    stream: StreamKey
    message_id: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer of a receiver. `error`: why the message does not count as delivered."""

    status: int | None
    excerpt: str | None
    duration_ms: int
    error: str | None = None


async def notify_settled(connection: Connection, *, execution_ids: Sequence[UUID]) -> int:
    """Over all tenants: the executions have just been settled by the caller."""
    return _written(connection, await connection.fetchval(q("notify_settled"), list(execution_ids)))


async def notify_retrying(connection: Connection, *, execution_ids: Sequence[UUID]) -> int:
    """Over all tenants: the executions have just been settled by the caller."""
    return _written(connection, await connection.fetchval(q("notify_retrying"), list(execution_ids)))


async def notify_unstarted(
    connection: Connection, *, kind: Literal["late", "missed"], after: UUID, limit: int
) -> tuple[int, UUID | None, int]:
    """Notify of late or missed executions of all tenants' jobs, from job `after` on.

    Returns how many jobs were checked, the last one, and the number of messages written.
    """
    row = await connection.fetchrow(q("notify_late" if kind == "late" else "notify_missed"), after, limit)
    assert row is not None
    return row["checked"], row["last"], _written(connection, row["n"])


async def notify_alert(
    connection: Connection,
    *,
    tenant: int,
    event_id: UUID,
    event: str,
    stream: str,
    body: dict[str, Any],
    channels: Sequence[str],
    job: str | None,
    received: UUID | None,
) -> int:
    """Write an alert for its channels, and for those that have received the event `received`."""
    written = await connection.fetchval(
        q("notify_alert"), tenant, event_id, event, stream, body, list(channels), job, received
    )
    return _written(connection, written)


def _written(connection: Connection, messages: int) -> int:
    """Wake the delivery if messages were written."""
    if messages:
        hint(connection, ports.OUTBOX)
    return messages


async def pending_heads(connection: Connection, *, after: StreamKey, limit: int) -> list[StreamHead]:
    """Over all tenants: a leader duty."""
    rows = await connection.fetch(q("pending_heads"), *after, limit)
    return [StreamHead((r["channel_id"], r["stream"]), r["message_id"], r["wait_s"]) for r in rows]


async def take_messages(connection: Connection, *, message_ids: Sequence[int], lease_s: float) -> list[Message]:
    """Take those messages that are due and not leased. Over all tenants: a leader duty."""
    rows = await connection.fetch(q("take_messages"), message_ids, lease_s)
    return [
        Message(
            r["message_id"],
            r["event_id"],
            r["tenant_id"],
            r["event"],
            {**r["body"], **contact_fields(r["metadata"])},
            r["tries"],
            r["created_at"],
            r["tried_at"],
            stored_target(r),
        )
        for r in sorted(rows, key=lambda r: r["message_id"])
    ]


async def message_sent(connection: Connection, *, message: Message, sent: Sent) -> None:
    await connection.execute(
        q("message_sent"), message.message_id, message.tries, sent.status, sent.excerpt, sent.duration_ms
    )


async def message_failed(
    connection: Connection, *, message: Message, sent: Sent, retry_s: float, give_up_s: float
) -> None:
    await connection.execute(
        q("message_failed"),
        message.message_id,
        message.tries,
        sent.status,
        sent.excerpt,
        sent.duration_ms,
        retry_s,
        give_up_s,
        sent.error,
    )


async def hold_message(connection: Connection, *, message: Message, until: datetime) -> None:
    await connection.execute(q("hold_message"), message.message_id, message.tries, until)


async def disable_failing(connection: Connection, *, longer_than_s: float) -> list[tuple[str, str]]:
    """Return the names of disabled channels with their last errors. Over all tenants: a leader duty."""
    rows = await connection.fetch(q("disable_failing"), longer_than_s)
    if rows:
        hint(connection, ports.CHANNELS)
        hint(connection, ports.OUTBOX)
    return [(r["name"], r["last_error"] or "") for r in rows]


async def list_deliveries(
    connection: Connection,
    *,
    tenant: int,
    before: int,
    limit: int,
    channel: str | None = None,
    state: str | None = None,
) -> list[wire.Delivery]:
    return [
        wire.Delivery(
            delivery_id=r["message_id"],
            event_id=r["event_id"],
            channel=r["channel"],
            event=r["event"],
            state=r["state"],
            tries=r["tries"],
            created_at=r["created_at"],
            tried_at=r["tried_at"],
            next_at=r["next_at"],
            status=r["status"],
            excerpt=r["excerpt"],
            error=r["error"],
            duration_ms=r["duration_ms"],
            data=r["body"],
        )
        for r in await connection.fetch(q("list_deliveries"), tenant, before, limit, channel, state)
    ]


async def forget_messages(connection: Connection, *, limit: int) -> None:
    await connection.execute(q("forget_messages"), limit)

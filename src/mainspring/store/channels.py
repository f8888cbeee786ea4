"""Notification channels, and which jobs notify them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.channel import Target, joined, kind_of, split
from mainspring.domain.job import JobNotification
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class ChannelRow:
    channel_id: UUID
    tenant: int
    name: str
    kind: str
    shown: dict[str, Any]
    hidden: dict[str, Any]
    events: list[str]
    jobs: list[str]
    created_at: datetime
    created_by: str
    failing_since: datetime | None
    last_error: str | None
    disabled_at: datetime | None
    pending: int

    @property
    def target(self) -> Target:
        return joined(self.kind, self.shown, self.hidden)


async def insert_channel(
    connection: Connection,
    *,
    tenant: int,
    channel_id: UUID,
    name: str,
    target: Target,
    events: Sequence[str],
    jobs: Sequence[str],
    by: str,
) -> None:
    shown, hidden = split(target)
    await connection.execute(
        q("insert_channel"), channel_id, tenant, name, kind_of(target), shown, hidden, list(events), list(jobs), by
    )
    hint(connection, ports.CHANNELS)


async def list_channels(connection: Connection, *, tenant: int, name: str | None = None) -> list[ChannelRow]:
    return [
        ChannelRow(
            r["channel_id"],
            r["tenant_id"],
            r["name"],
            r["kind"],
            r["target"],
            r["secrets"],
            list(r["events"]),
            list(r["jobs"]),
            r["created_at"],
            r["created_by"],
            r["failing_since"],
            r["last_error"],
            r["disabled_at"],
            r["pending"],
        )
        for r in await connection.fetch(q("list_channels"), tenant, name)
    ]


async def lock_channel(connection: Connection, *, tenant: int, name: str) -> None:
    """Lock a channel until the end of the transaction, so that its secrets are those of the address that was read."""
    await connection.execute(q("lock_channel"), tenant, name)


async def update_channel(
    connection: Connection, *, tenant: int, name: str, target: Target, events: Sequence[str], jobs: Sequence[str]
) -> bool:
    shown, hidden = split(target)
    row = await connection.fetchrow(
        q("update_channel"), tenant, name, kind_of(target), shown, hidden, list(events), list(jobs)
    )
    hint(connection, ports.CHANNELS)
    return row is not None


async def enable_channel(connection: Connection, *, tenant: int, name: str) -> bool:
    hint(connection, ports.CHANNELS)
    return await connection.fetchrow(q("enable_channel"), tenant, name) is not None


async def delete_channel(connection: Connection, *, tenant: int, name: str) -> bool:
    hint(connection, ports.CHANNELS)
    return await connection.fetchrow(q("delete_channel"), tenant, name) is not None


async def known_channels(connection: Connection, *, tenant: int, names: Sequence[str]) -> set[str]:
    return {r["name"] for r in await connection.fetch(q("known_channels"), tenant, list(names))}


async def replace_notifications(
    connection: Connection, *, tenant: int, job_id: UUID, rows: Sequence[JobNotification]
) -> None:
    changed = await connection.fetchrow(
        q("replace_notifications"),
        job_id,
        tenant,
        [r.kind for r in rows],
        [r.channel for r in rows],
        [r.by_s for r in rows],
        [r.factor for r in rows],
    )
    if changed is not None:
        hint(connection, ports.CHANNELS)


async def replace_notifications_of_jobs(
    connection: Connection, *, tenant: int, rows: Mapping[UUID, Sequence[JobNotification]]
) -> None:
    every = [(job_id, row) for job_id, found in rows.items() for row in found]
    await connection.execute(
        q("replace_notifications_of_jobs"),
        tenant,
        list(rows),
        [job_id for job_id, _ in every],
        [row.kind for _, row in every],
        [row.channel for _, row in every],
        [row.by_s for _, row in every],
        [row.factor for _, row in every],
    )
    hint(connection, ports.CHANNELS)


async def subscribed(connection: Connection) -> frozenset[str]:
    """Return the names of subscribed events. Over all tenants: settling serves every tenant."""
    return frozenset(r["event"] for r in await connection.fetch(q("subscribed")))

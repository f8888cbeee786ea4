"""Notification channels, and which jobs notify them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.channel import SECRETS
from mainspring.domain.events import SUBSCRIBED
from mainspring.domain.job import JobNotification
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q
from mainspring.store.secret_fields import SecretFields


@dataclass(frozen=True, slots=True)
class StoredTarget:
    """The target of a channel: `shown` are its public fields, `secrets` are encrypted or refer to secrets."""

    channel_id: UUID
    tenant: int
    channel: str
    kind: str
    shown: dict[str, Any]
    secrets: SecretFields

    @property
    def secret_names(self) -> list[str]:
        """The secret fields that are set."""
        return sorted(SECRETS[self.kind] if self.secrets.envelope is not None else self.secrets.plain)


@dataclass(frozen=True, slots=True)
class ChannelRow:
    stored: StoredTarget
    events: list[str]
    jobs: list[str]
    created_at: datetime
    created_by: str
    failing_since: datetime | None
    last_error: str | None
    disabled_at: datetime | None
    pending: int

    @property
    def name(self) -> str:
        return self.stored.channel

    @property
    def kind(self) -> str:
        return self.stored.kind


async def insert_channel(
    connection: Connection,
    *,
    tenant: int,
    target: StoredTarget,
    events: Sequence[str],
    jobs: Sequence[str],
    by: str,
) -> None:
    await connection.execute(
        q("insert_channel"), target.channel_id, tenant, target.channel, *_columns(target), list(events), list(jobs), by
    )
    hint(connection, ports.CHANNELS)


async def list_channels(connection: Connection, *, tenant: int, name: str | None = None) -> list[ChannelRow]:
    return [
        ChannelRow(
            stored_target(r),
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


def stored_target(r: Any) -> StoredTarget:
    """Read the target of a channel from a row with its columns."""
    secrets = SecretFields(r["secrets"], r["key_id"], r["envelope"])
    return StoredTarget(r["channel_id"], r["tenant_id"], r["name"], r["kind"], r["target"], secrets)


def _columns(target: StoredTarget) -> tuple[Any, ...]:
    return target.kind, target.shown, *target.secrets.columns()


async def lock_channel(connection: Connection, *, tenant: int, name: str) -> None:
    """Lock a channel until the end of the transaction, so that its secrets are those of the address that was read."""
    await connection.execute(q("lock_channel"), tenant, name)


async def update_channel(
    connection: Connection, *, tenant: int, target: StoredTarget, events: Sequence[str], jobs: Sequence[str]
) -> bool:
    """Replace a channel, which the caller has locked."""
    row = await connection.fetchrow(
        q("update_channel"), tenant, target.channel, *_columns(target), list(events), list(jobs)
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
    rows = await connection.fetch(q("subscribed"), list(SUBSCRIBED))
    return frozenset(r["event"] for r in rows)

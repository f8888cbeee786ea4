"""Secrets: metadata, and encrypted values that this layer cannot read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.domain.secret import Destinations
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class SecretRow:
    tenant: int
    tenant_name: str
    name: str
    version: int
    description: str
    to: Destinations
    provider: str | None
    path: str | None
    key_id: str | None
    envelope: bytes | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewSecret:
    """What is written of a secret: its metadata, and an envelope or a provider's path."""

    description: str
    to: Destinations
    provider: str | None = None
    path: str | None = None
    key_id: str | None = None
    envelope: bytes | None = None

    def columns(self) -> tuple[Any, ...]:
        to = self.to
        lists = list(to.jobs), list(to.queues), list(to.hosts), list(to.channels), list(to.triggers)
        return (self.description, *lists, self.provider, self.path, self.key_id, self.envelope)


@dataclass(frozen=True, slots=True)
class SealedRow:
    """An envelope to wrap again."""

    tenant: int
    name: str
    version: int
    key_id: str
    envelope: bytes


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """What an attempt runs, and for which tenant."""

    tenant: int
    job_id: UUID
    version: int
    queue: str
    params: dict[str, Any] | None


async def running_attempt(
    connection: Connection, *, session_id: UUID, execution_id: UUID, attempt: int
) -> RunningAttempt | None:
    """An attempt that the session runs, of any tenant: a session may be shared."""
    row = await connection.fetchrow(q("running_attempt"), execution_id, session_id, attempt)
    return None if row is None else RunningAttempt(*row)


async def list_secrets(
    connection: Connection, *, tenant: int, after: str = "", limit: int, name: str | None = None
) -> list[SecretRow]:
    return [_row(r) for r in await connection.fetch(q("list_secrets"), tenant, after, limit, name)]


async def secrets_by_name(connection: Connection, *, tenant: int, names: Sequence[str]) -> dict[str, SecretRow]:
    rows = await connection.fetch(q("secrets_by_name"), tenant, list(names))
    return {r["name"]: _row(r) for r in rows}


async def lock_secret(connection: Connection, *, tenant: int, name: str) -> SecretRow | None:
    row = await connection.fetchrow(q("lock_secret"), tenant, name)
    return None if row is None else _row(row)


async def insert_secret(connection: Connection, *, tenant: int, name: str, new: NewSecret, by: str) -> None:
    await connection.execute(q("insert_secret"), tenant, name, *new.columns(), by)


async def update_secret(
    connection: Connection, *, tenant: int, name: str, seen: int, version: int, new: NewSecret, by: str
) -> bool:
    """Replace a secret of version `seen`; return whether it still had that version."""
    row = await connection.fetchrow(q("update_secret"), tenant, name, seen, version, *new.columns(), by)
    return row is not None


async def delete_secret(connection: Connection, *, tenant: int, name: str) -> bool:
    return await connection.fetchrow(q("delete_secret"), tenant, name) is not None


async def see_secrets_used(connection: Connection, *, tenant: int, names: Sequence[str]) -> None:
    await connection.execute(q("see_secrets_used"), tenant, list(names))


async def count_by_key(connection: Connection) -> dict[str, int]:
    return {r["key_id"]: r["count"] for r in await connection.fetch(q("count_by_key"))}


async def secrets_under_other_keys(connection: Connection, *, key_id: str, limit: int) -> list[SealedRow]:
    rows = await connection.fetch(q("secrets_under_other_keys"), key_id, limit)
    return [SealedRow(r["tenant_id"], r["name"], r["version"], r["key_id"], r["envelope"]) for r in rows]


async def rewrap_secrets(
    connection: Connection, *, key_id: str, rows: Sequence[SealedRow], envelopes: Sequence[bytes]
) -> None:
    await connection.execute(
        q("rewrap_secrets"),
        key_id,
        [row.tenant for row in rows],
        [row.name for row in rows],
        [row.version for row in rows],
        [row.key_id for row in rows],
        list(envelopes),
    )


def _row(r: Any) -> SecretRow:
    return SecretRow(
        r["tenant_id"],
        r["tenant_name"],
        r["name"],
        r["version"],
        r["description"],
        Destinations(list(r["jobs"]), list(r["queues"]), list(r["hosts"]), list(r["channels"]), list(r["triggers"])),
        r["provider"],
        r["path"],
        r["key_id"],
        r["envelope"],
        r["created_at"],
        r["created_by"],
        r["updated_at"],
        r["updated_by"],
        r["last_used_at"],
    )

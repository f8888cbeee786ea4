"""Users and services of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q

Kind = Literal["user", "service"]


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    principal_id: UUID
    kind: Kind
    name: str
    display_name: str
    role: str
    created_at: datetime
    created_by: str
    issuer: str | None  # of OpenID Connect, that knows the user
    blocked_at: datetime | None
    tokens: int
    last_used_at: datetime | None
    groups: list[str]


async def insert_principal(
    connection: Connection,
    *,
    tenant: int,
    principal_id: UUID,
    kind: Kind,
    name: str,
    display_name: str,
    role: str,
    groups: Sequence[str],
    created_by: str,
) -> None:
    """Add a user or a service. Raises `Taken` if the name is in use."""
    await connection.execute(
        q("insert_principal"), principal_id, tenant, kind, name, display_name, role, created_by, list(groups)
    )


async def list_principals(connection: Connection, *, tenant: int, after: str, limit: int) -> list[PrincipalRow]:
    return [_row(r) for r in await connection.fetch(q("list_principals"), tenant, after, limit)]


async def lock_principal(connection: Connection, *, tenant: int, name: str) -> PrincipalRow | None:
    row = await connection.fetchrow(q("lock_principal"), tenant, name)
    return None if row is None else _row(row)


async def update_principal(
    connection: Connection, *, tenant: int, principal_id: UUID, display_name: str, role: str, groups: Sequence[str]
) -> None:
    await connection.execute(q("update_principal"), principal_id, tenant, display_name, role, list(groups))


async def delete_principal(connection: Connection, *, tenant: int, principal_id: UUID) -> None:
    await connection.execute(q("delete_principal"), principal_id, tenant)


def _row(row: Any) -> PrincipalRow:
    return PrincipalRow(**dict(row))

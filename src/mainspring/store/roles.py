"""Roles that tenants define. The built-in ones are in domain/roles.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class RoleRow:
    name: str
    scopes: tuple[str, ...]
    description: str
    created_at: datetime
    created_by: str


async def list_roles(connection: Connection, *, tenant: int, limit: int) -> list[RoleRow]:
    return [_row(r) for r in await connection.fetch(q("list_roles"), tenant, limit)]


async def role_by_name(connection: Connection, *, tenant: int, name: str) -> RoleRow | None:
    """A role of the tenant; its row is locked until the end of the transaction."""
    row = await connection.fetchrow(q("role_by_name"), tenant, name)
    return None if row is None else _row(row)


async def write_role(
    connection: Connection, *, tenant: int, name: str, scopes: tuple[str, ...], description: str, created_by: str
) -> RoleRow:
    return _row(await connection.fetchrow(q("write_role"), tenant, name, list(scopes), description, created_by))


async def count_roles(connection: Connection, *, tenant: int) -> int:
    return int(await connection.fetchval(q("count_roles"), tenant))


async def role_is_used(connection: Connection, *, tenant: int, name: str) -> bool:
    return bool(await connection.fetchval(q("role_is_used"), tenant, name))


async def delete_role(connection: Connection, *, tenant: int, name: str) -> bool:
    return await connection.fetchval(q("delete_role"), tenant, name) is not None


def _row(row: Any) -> RoleRow:
    return RoleRow(row["name"], tuple(row["scopes"]), row["description"], row["created_at"], row["created_by"])

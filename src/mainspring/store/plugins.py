"""Settings schemas of plug-in executors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.store.db import Connection
from mainspring.store.queries import q


async def upsert_plugins(
    connection: Connection, *, tenant: int, schemas: Mapping[str, dict[str, Any]], shared: bool
) -> None:
    await connection.execute(q("upsert_plugins"), tenant, list(schemas), list(schemas.values()), shared)


async def plugin_schema(connection: Connection, *, tenant: int, type_: str) -> dict[str, Any] | None:
    schema: dict[str, Any] | None = await connection.fetchval(q("plugin_schema"), tenant, type_)
    return schema


async def list_plugins(connection: Connection, *, tenant: int, limit: int) -> dict[str, dict[str, Any]]:
    return {row["type"]: row["schema"] for row in await connection.fetch(q("list_plugins"), tenant, limit)}

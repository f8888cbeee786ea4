"""Settings schemas of plug-in tasks."""

from __future__ import annotations

from typing import Any

from mainspring.store import plugins
from mainspring.store.db import Database


async def list_schemas(database: Database, *, tenant: int, limit: int = 50) -> dict[str, dict[str, Any]]:
    """The schemas of known plug-ins, by type."""
    async with database.connection() as connection:
        return await plugins.list_plugins(connection, tenant=tenant, limit=limit)

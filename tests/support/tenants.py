"""A second tenant."""

from __future__ import annotations

from mainspring.store.db import Database


async def add_tenant(database: Database, name: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id", name))

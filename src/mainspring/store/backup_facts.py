"""What a backup records of its database: an exported snapshot, and counts that the same snapshot sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from mainspring.store.db import IDLE_TRANSACTION, SCHEMA, connection_settings
from mainspring.store.migrate import schema_version
from mainspring.store.queries import q

LAST_STATEMENT = (
    f"SET search_path = {SCHEMA};"
    " DO $$ DECLARE one regprocedure; BEGIN"
    " FOR one IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef LOOP"
    " EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one); END LOOP; END $$;"
    " SELECT hold_firing('{backup_at}'::timestamptz)"
)
"""Ends the transaction of a restore: restricts functions that have the owner's rights, as dumps have no privileges, and
begins a hold."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot, its time, and facts that a restore can be compared with."""

    name: str
    taken_at: datetime
    server_version: str
    schema_version: int
    decided_upto: datetime
    rows: dict[str, int]


@asynccontextmanager
async def exported_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """A snapshot that other sessions can use until the context ends. It blocks no writer."""
    settings = connection_settings() | {IDLE_TRANSACTION: "0"}
    connection = await asyncpg.connect(url, timeout=10, server_settings=settings)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await connection.fetchrow(q("backup_facts"))
            assert row is not None
            name = await connection.fetchval(q("export_snapshot"))
            rows = {r["name"]: r["rows"] for r in await connection.fetch(q("backup_rows"))}
            version = await schema_version(connection)
            yield Snapshot(name, row["taken_at"], row["server_version"], version, row["decided_upto"], rows)
    finally:
        await connection.close()


async def counted_rows(url: str) -> dict[str, int]:
    """Return the counts that a backup records, of a database as it is now."""
    connection = await asyncpg.connect(url, timeout=10, server_settings=connection_settings())
    try:
        return {r["name"]: r["rows"] for r in await connection.fetch(q("backup_rows"))}
    finally:
        await connection.close()


async def is_empty(url: str) -> bool:
    """Whether a database has nothing of Mainspring."""
    connection = await asyncpg.connect(url, timeout=10, server_settings=connection_settings())
    try:
        return await schema_version(connection) == 0
    finally:
        await connection.close()

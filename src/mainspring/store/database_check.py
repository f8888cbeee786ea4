"""Checks of a database before a server uses it: reachable, recent enough, writable, migrated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from mainspring.store.db import CONNECT_TIMEOUT_S, SCHEMA, Database, connection_settings, pooled_settings
from mainspring.store.migrate import migrations, schema_version
from mainspring.store.pooler import NEEDED, SessionNeeded, has_pooler, keeps_session
from mainspring.store.primary import primary_of
from mainspring.store.queries import q

OLDEST_VERSION = 140_000


async def check_database(url: str) -> list[str]:
    """Return what is wrong with a database. Reads only, in one transaction."""
    try:
        connection = await asyncpg.connect(url, server_settings=connection_settings())
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        return [f"database: cannot connect: {str(error) or type(error).__name__}"]
    try:
        async with connection.transaction(readonly=True, isolation="repeatable_read"):
            row = await connection.fetchrow(q("database_fitness"))
            assert row is not None
            have, known = await schema_version(connection), migrations()[-1].number
    finally:
        await connection.close()
    found = []
    if row["version"] < OLDEST_VERSION:
        found.append(f"database: PostgreSQL {row['server_version']} is too old; 14 or later is required")
    if row["is_standby"]:
        found.append("database: this server is a standby; name the primary, or all hosts in one URL")
    if row["synchronous_commit"] == "off":
        found.append("database: synchronous_commit is off: a crash of PostgreSQL would lose acknowledged executions")
    if have > known:
        found.append(f"database: schema {have} is newer than this program ({known}); upgrade mainspring here")
    if have == 0 and not row["may_create"]:
        found.append("database: this role may not create the schema `mainspring`; grant CREATE on the database")
    return found


async def check_sessions(database: Database, *, tenant_dsn: str | None = None) -> None:
    """Raise unless each URL keeps sessions where that is needed: a pooler in transaction mode does not."""
    if database.direct_dsn is None:
        await _demand_sessions(database.dsn, "--database-url", "; or add --direct-database-url")
    else:
        await _demand_settings(database.dsn)
        await _demand_sessions(database.direct_dsn, "--direct-database-url", "")
    if tenant_dsn is not None:
        await _demand_sessions(tenant_dsn, "--tenant-database-url", "")


async def _demand_settings(url: str) -> None:
    with _ending(await _connect(url, pooled_settings())) as connection:
        found = await connection.fetchval(q("pooled_search_path"))
        if found != SCHEMA:
            raise SessionNeeded(
                f"--database-url: the sessions of the pooler have search_path {found}: they are older than the default"
                " of their role, or another role's. Run RECONNECT on the console of PgBouncer"
            )


async def _demand_sessions(url: str, option: str, advice: str) -> None:
    with _ending(await _connect(url, connection_settings())) as first:
        if not await has_pooler(first):
            return
        with _ending(await _connect(url, connection_settings())) as second:
            if not await keeps_session(first, second):
                raise SessionNeeded(f"{option} leads through a pooler in transaction mode, and {NEEDED}{advice}")


async def _connect(url: str, settings: dict[str, str]) -> asyncpg.Connection[Any]:
    return await primary_of(url).connect(timeout=CONNECT_TIMEOUT_S, server_settings=settings, statement_cache_size=0)


@contextmanager
def _ending(connection: asyncpg.Connection[Any]) -> Iterator[asyncpg.Connection[Any]]:
    try:
        yield connection
    finally:
        connection.terminate()

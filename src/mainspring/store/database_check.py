"""Checks of a database before a server uses it: reachable, recent enough, writable, migrated."""

from __future__ import annotations

import asyncpg

from mainspring.store.db import connection_settings
from mainspring.store.migrate import migrations, schema_version
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

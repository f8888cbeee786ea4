"""Migrate a database to this program's schema: numbered SQL files, applied once each, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

import asyncpg

from mainspring.domain.errors import Conflict, MainspringError
from mainspring.store.db import SCHEMA, Connection, connection_settings, stored_settings
from mainspring.store.pooler import store_settings
from mainspring.store.primary import primary_of
from mainspring.store.queries import q

_FILE = re.compile(r"(\d{4})_(\w+)\.sql\Z")
_LOCK = 0x6D61696E  # any constant: two starting programs must not migrate concurrently


class SchemaTooNew(MainspringError):
    """The database was migrated by a newer program."""

    code = "schema_too_new"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    found = []
    for file in resources.files("mainspring.store").joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text()))
    return sorted(found, key=lambda m: m.number)


class NotOwner(MainspringError):
    """The schema must be changed, and this role does not own it."""

    code = "not_owner"


async def migrate(dsn: str) -> list[Migration]:
    """Apply missing migrations, each in its own transaction; return those applied.

    A role that does not own the schema can only find it up to date.
    """
    connection = await primary_of(dsn).connect(timeout=10, server_settings=connection_settings())
    try:
        await connection.execute("SELECT pg_advisory_lock($1::bigint)", _LOCK)
        return await _apply_missing(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        role = await connection.fetchval("SELECT session_user")
        raise NotOwner(
            f"the role {role} cannot migrate the schema {SCHEMA} ({error}): run `mainspring db migrate` with the URL"
            " of the role that owns it"
        ) from None
    finally:
        await connection.close()


async def prepare_pooled_role(direct_dsn: str, pooled_dsn: str) -> None:
    """Store the settings that connections through PgBouncer can't pass as defaults of their role."""
    connection = await primary_of(direct_dsn).connect(timeout=10, server_settings=connection_settings())
    try:
        await connection.execute("SELECT pg_advisory_lock($1::bigint)", _LOCK)
        await store_settings(connection, pooled_dsn, stored_settings())
    finally:
        await connection.close()


async def installed_version(dsn: str) -> int:
    """The schema version of a database, read over a new connection."""
    connection = await primary_of(dsn).connect(timeout=10, server_settings=connection_settings())
    try:
        return await schema_version(connection)
    finally:
        await connection.close()


async def require_schema(dsn: str, *, as_owner: bool = False) -> None:
    """Raise an error unless the database has the schema of this program, and, if asked for, the role owns it."""
    connection = await primary_of(dsn).connect(timeout=10, server_settings=connection_settings())
    try:
        have, known = await schema_version(connection), migrations()[-1].number
        if have == 0:
            raise Conflict("the database has no schema of Mainspring: check the URL, or run mainspring db migrate")
        if have < known:
            raise Conflict(f"the database has schema {have}; migrate it first: mainspring db migrate")
        if have > known:
            raise SchemaTooNew(f"the database has schema {have}, this program has {known}: upgrade mainspring")
        if as_owner and not await connection.fetchval(q("owns_schema")):
            role = await connection.fetchval("SELECT session_user")
            raise NotOwner(f"the role {role} does not own the schema {SCHEMA}: use the URL of its owner")
    finally:
        await connection.close()


async def schema_version(connection: Connection) -> int:
    """The number of the newest applied migration; 0 for an empty database."""
    if await connection.fetchval(f"SELECT to_regclass('{SCHEMA}.migrations')") is None:
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations"))


async def _apply_missing(connection: Connection) -> list[Migration]:
    have = await schema_version(connection)
    known = migrations()
    if have > known[-1].number:
        raise SchemaTooNew(
            f"the database has schema version {have}, this program supports up to {known[-1].number}: "
            "upgrade mainspring on this machine"
        )
    missing = [m for m in known if m.number > have]
    if missing:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (number int PRIMARY KEY, name text NOT NULL,"
            " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
    for migration in missing:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO migrations (number, name) VALUES ($1, $2)", migration.number, migration.name
            )
    if missing or await connection.fetch(q("unprotected_tables")):
        await protect_tables(connection)
    return missing


async def protect_tables(connection: Connection) -> None:
    """Create the row-level security policies and grants that are missing, one table per transaction."""
    for row in await connection.fetch(q("protected_relations")):
        await connection.execute(q("protect_table"), row["name"])

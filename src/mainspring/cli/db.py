"""`mainspring db`: schema, state, retention and backups of the database."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from mainspring.cli.db_backup import backup, restore, verify
from mainspring.cli.db_hold import hold, recovery_settings, resume
from mainspring.cli.group import DatabaseGroup
from mainspring.cli.options import current, server_options
from mainspring.cli.output import echo
from mainspring.cli.server_settings import (
    retention_options,
    server_database_url_option,
    session_url_option,
    tenant_database_url_option,
)
from mainspring.store import holds, system
from mainspring.store.archives import archived_days
from mainspring.store.database_roles import grant_roles
from mainspring.store.db import Database
from mainspring.store.migrate import installed_version, migrate, migrations, require_schema
from mainspring.store.migration_plan import PlannedStatement, TableSize, plan

SHOWN_TABLES = 12
SHOWN_CHARS = 100
OLD_TRANSACTION_S = 3600.0


@click.group(cls=DatabaseGroup)
def db() -> None:
    """Migrate, inspect, prune, back up and restore the database."""


db.add_command(backup)
db.add_command(verify)
db.add_command(restore)
db.add_command(recovery_settings)
db.add_command(hold)
db.add_command(resume)


@db.command("migrate")
@session_url_option
@server_database_url_option
@tenant_database_url_option
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be locked, and for how long. Changes nothing.")
def migrate_command(
    database_url: str, server_database_url: str | None, tenant_database_url: str | None, only_plan: bool
) -> None:
    """Migrate the database to the schema of this version. Safe to repeat and to run concurrently.

    --database-url names the role that owns the schema. The other two URLs name the roles of servers: they are created
    if they are missing, and get the privileges that servers need.
    """
    if only_plan:
        asyncio.run(_show_plan(database_url))
        return
    applied = asyncio.run(migrate(database_url))
    for migration in applied:
        echo(f"✔ {migration.number:04} {migration.name}")
    if not applied:
        echo("schema is up to date", err=True)
    if server_database_url is not None or tenant_database_url is not None:
        granted = grant_roles(database_url, server_url=server_database_url, tenant_url=tenant_database_url)
        for role in asyncio.run(granted):
            echo(f"✔ granted {role}")


async def _show_plan(url: str) -> None:
    have = await installed_version(url)
    missing = [migration for migration in migrations() if migration.number > have]
    if not missing:
        echo("schema is up to date", err=True)
        return
    sizes: dict[str, TableSize] = {}
    if have:
        async with Database(url, size=1) as database, database.connection() as connection:
            sizes = {t.name: TableSize(t.bytes, t.rows) for t in await system.table_upkeep(connection)}
    planned = plan(missing, sizes)
    for migration in missing:
        echo(f"{migration.number:04} {migration.name}")
        for statement in planned:
            if statement.number == migration.number:
                echo(f"     {_line(statement)}")
    seconds = sum(statement.seconds for statement in planned)
    echo(f"about {seconds:.1f} s in total; each migration is one transaction, and needs its locks once", err=True)


def _line(statement: PlannedStatement) -> str:
    words = statement.statement
    short = words if len(words) <= SHOWN_CHARS else f"{words[: SHOWN_CHARS - 1]}…"
    blocks = f"blocks {statement.blocks}" if statement.blocks != "nothing" else "blocks nothing"
    return f"{statement.table}: {statement.lock} lock ({blocks}) for about {statement.seconds:.1f} s: {short}"


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `db status` shows."""

    schema_version: int
    program_schema_version: int
    server_version: str | None = None
    bytes: int | None = None
    connections: int | None = None
    most_connections: int | None = None
    oldest_transaction_s: float | None = None
    transaction_age: int | None = None
    hold: str | None = None
    tables: list[dict[str, Any]] = []


@db.command("status")
@server_options(hidden=True)
@session_url_option
def status(database_url: str) -> None:
    """Show schema versions, sizes, dead rows, partitions, connections and the oldest transaction."""
    found = asyncio.run(_status(database_url))
    if current().output != "table":
        echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    have, known = found.schema_version, found.program_schema_version
    if have == 0:
        echo(f"the database has no schema of Mainspring (schema {known}): check the URL, or mainspring db migrate")
        return
    advice = (
        "" if have == known else "; migrate with: mainspring db migrate" if have < known else "; upgrade this program"
    )
    echo(f"database schema {have}, program schema {known}{advice}")
    if found.bytes is None:
        return
    echo(f"PostgreSQL {found.server_version}, {_size(found.bytes)}")
    echo(f"{found.connections} of {found.most_connections} connections")
    oldest = found.oldest_transaction_s or 0.0
    warning = ": vacuum cannot remove rows that died since it began" if oldest > OLD_TRANSACTION_S else ""
    echo(f"oldest transaction {oldest:.0f} s{warning}")
    for table in found.tables[:SHOWN_TABLES]:
        dead = f", {table['dead_rows']:,} dead" if table["dead_rows"] else ""
        parts = f" in {table['parts']} partitions" if table["parts"] > 1 else ""
        echo(f"  {table['name']:<20} {_size(table['bytes']):>9}  about {table['rows']:,} rows{dead}{parts}")
    if found.hold is not None:
        echo(f"✖ {found.hold}")


async def _status(url: str) -> DatabaseStatus:
    have, known = await installed_version(url), migrations()[-1].number
    if have != known:
        return DatabaseStatus(schema_version=have, program_schema_version=known)
    async with Database(url, size=1) as database, database.connection() as connection:
        facts = await system.system_facts(connection)
        tables = await system.table_upkeep(connection)
        hold = await holds.open_hold(connection)
        return DatabaseStatus(
            schema_version=have,
            program_schema_version=known,
            server_version=facts.version,
            bytes=facts.bytes,
            connections=facts.connections,
            most_connections=facts.most_connections,
            oldest_transaction_s=await system.oldest_transaction_s(connection),
            transaction_age=facts.transaction_age,
            hold=None if hold is None else str(hold),
            tables=[msgspec.to_builtins(table) for table in tables],
        )


def _size(amount: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount //= 1024
    return f"{amount:,} TiB"


@db.command("prune")
@session_url_option
@retention_options
def prune(
    database_url: str, keep_dead_letters_s: float, keep_runs_s: float, keep_history_s: float, keep_output_s: float
) -> None:
    """Delete what is older than its retention now, as the leader does every ten minutes.

    History and output of an installation with an archive stay: see `mainspring archive write`.
    """
    from mainspring.duties.retention import Retention

    async def run() -> None:
        await require_schema(database_url)
        async with Database(database_url, size=2) as database:
            async with database.connection() as connection:
                has_archive = bool(await archived_days(connection, limit=1))
            await Retention(
                database,
                leads=lambda: True,
                keep_dead_letters_s=keep_dead_letters_s,
                keep_runs_s=keep_runs_s,
                keep_history_s=keep_history_s,
                keep_output_s=keep_output_s,
                archives=has_archive,
            ).run_once()

    asyncio.run(run())
    echo("✔ pruned")

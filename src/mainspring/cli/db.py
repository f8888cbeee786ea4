"""`mainspring db`: the database itself."""

from __future__ import annotations

import asyncio

import asyncpg
import click

from mainspring.store.db import connection_settings
from mainspring.store.migrate import migrate, migrations, schema_version


@click.group()
def db() -> None:
    """Migrate and look at the database."""


@db.command("migrate")
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", required=True)
def migrate_command(database_url: str) -> None:
    """Bring the database to this program's schema; safe to repeat, and under way in several places at once."""
    applied = asyncio.run(migrate(database_url))
    for migration in applied:
        click.echo(f"✔ {migration.number:04} {migration.name}")
    if not applied:
        click.echo("The schema is up to date.", err=True)


@db.command("status")
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", required=True)
def status(database_url: str) -> None:
    """Which schema the database has, and which one this program knows."""

    async def look() -> int:
        connection = await asyncpg.connect(database_url, timeout=10, server_settings=connection_settings())
        try:
            return await schema_version(connection)
        finally:
            await connection.close()

    have, known = asyncio.run(look()), migrations()[-1].number
    click.echo(
        f"schema {have}, this program knows {known}"
        + ("" if have == known else ": run `mainspring db migrate`")
    )

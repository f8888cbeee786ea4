"""`mainspring db`: the database schema."""

from __future__ import annotations

import asyncio

import click

from mainspring.cli.server_settings import database_url_option
from mainspring.store.migrate import installed_version, migrate, migrations


@click.group()
def db() -> None:
    """Migrate the database and show its schema version."""


@db.command("migrate")
@database_url_option
def migrate_command(database_url: str) -> None:
    """Migrate the database to the schema of this version. Safe to repeat and to run concurrently."""
    applied = asyncio.run(migrate(database_url))
    for migration in applied:
        click.echo(f"✔ {migration.number:04} {migration.name}")
    if not applied:
        click.echo("schema is up to date", err=True)


@db.command("status")
@database_url_option
def status(database_url: str) -> None:
    """Show the schema version of the database and of this program."""
    have, known = asyncio.run(installed_version(database_url)), migrations()[-1].number
    click.echo(
        f"database schema {have}, program schema {known}"
        + (
            ""
            if have == known
            else "; migrate with: mainspring db migrate"
            if have < known
            else "; upgrade this program"
        )
    )

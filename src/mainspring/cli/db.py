"""`mainspring db`: the database itself."""

from __future__ import annotations

import asyncio

import click

from mainspring.store.migrate import installed_version, migrate, migrations


@click.group()
def db() -> None:
    """Migrate and look at the database."""


@db.command("migrate")
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", show_envvar=True, required=True)
def migrate_command(database_url: str) -> None:
    """Bring the database to this program's schema; safe to repeat, and under way in several places at once."""
    applied = asyncio.run(migrate(database_url))
    for migration in applied:
        click.echo(f"✔ {migration.number:04} {migration.name}")
    if not applied:
        click.echo("The schema is up to date.", err=True)


@db.command("status")
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", show_envvar=True, required=True)
def status(database_url: str) -> None:
    """Which schema the database has, and which one this program knows."""
    have, known = asyncio.run(installed_version(database_url)), migrations()[-1].number
    click.echo(
        f"schema {have}, this program knows {known}" + ("" if have == known else ": run `mainspring db migrate`")
    )

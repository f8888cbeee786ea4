"""`mainspring archive`: list, verify, write and restore days of history and output."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any, TypeVar

import click
import msgspec

from mainspring.backends.archive_places import open_archive_place
from mainspring.cli.group import DatabaseGroup
from mainspring.cli.options import current, server_options
from mainspring.cli.output import echo
from mainspring.cli.server_settings import archive_after_option, archive_url_option, database_url_option, retention
from mainspring.domain.errors import NotFound
from mainspring.store import archives
from mainspring.store.archives import CONTENTS, ArchivedDay, Parent
from mainspring.store.db import Database

T = TypeVar("T")
TABLES: dict[Parent, str] = {"history": "history", "log_chunks": "output"}


@click.group(cls=DatabaseGroup)
def archive() -> None:
    """List, verify and restore archived days of history and output.

    These commands connect to the database and to the archive, not to a server.
    """


def _day(_context: click.Context, _parameter: click.Parameter, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a day; write it as 2026-03-01") from None


def _run(url: str, work: Callable[[Database], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Database(url, size=2) as database:
            return await work(database)

    return asyncio.run(run())


@archive.command("list")
@server_options(hidden=True)
@database_url_option
def list_days(database_url: str) -> None:
    """List the archived days, the latest first."""

    async def read(database: Database) -> list[ArchivedDay]:
        async with database.connection() as connection:
            return await archives.archived_days(connection)

    days = _run(database_url, read)
    if current().output != "table":
        echo(msgspec.json.format(msgspec.json.encode({"items": [_item(day) for day in days]})).decode())
        return
    for day in days:
        until = f" until {day.restored_until:%Y-%m-%d}" if day.restored_until is not None else ""
        error = f": {day.error}" if day.error else ""
        echo(
            f"{day.day}  {TABLES[day.parent]:<8} {day.state + until:<10} {day.rows:>12,} rows {day.size:>14,} bytes"
            f" in {day.files} files{error}"
        )
    if not days:
        echo("the archive is empty", err=True)


def _item(day: ArchivedDay) -> dict[str, Any]:
    return {
        "day": day.day,
        "table": TABLES[day.parent],
        "state": day.state,
        "rows": day.rows,
        "bytes": day.size,
        "files": day.files,
        "written_at": day.written_at,
        "restored_until": day.restored_until,
        "error": day.error,
    }


@archive.command("write")
@database_url_option
@archive_url_option(required=True)
@archive_after_option
def write(database_url: str, archive_url: str, archive_after_s: float) -> None:
    """Archive what is old enough now, as the leader does every ten minutes."""
    from mainspring.archive.write import ArchiveWriter

    place = open_archive_place(archive_url)

    async def run(database: Database) -> None:
        writer = ArchiveWriter(database, place)
        for parent in CONTENTS:
            for day in await writer.archive_all(parent, after_s=archive_after_s):
                echo(f"✔ {day} {TABLES[parent]}")

    _run(database_url, run)


@archive.command("verify")
@database_url_option
@archive_url_option(required=True)
@click.argument("day", callback=_day)
def verify(database_url: str, archive_url: str, day: date) -> None:
    """Read all files of DAY and compare their SHA-256 and rows with the catalogue."""
    from mainspring.archive.restore import verify_day

    place = open_archive_place(archive_url)

    async def run(database: Database) -> None:
        for parent in await _parents(database, day):
            files = await verify_day(database, place, parent, day)
            rows = sum(file.rows for file in files if file.content == parent)
            echo(f"✔ {day} {TABLES[parent]}: {rows:,} rows in {len(files)} files")

    _run(database_url, run)


@archive.command("restore")
@database_url_option
@archive_url_option(required=True)
@click.option(
    "--keep",
    "keep_s",
    default="7d",
    show_default=True,
    type=retention,
    metavar="DURATION",
    help="How long the restored rows are kept. The archive keeps its files.",
)
@click.argument("day", callback=_day)
def restore(database_url: str, archive_url: str, keep_s: float, day: date) -> None:
    """Restore DAY from the archive into the tables of the database.

    --database-url names the role that owns the schema. The day is visible when all its rows are restored.
    """
    from mainspring.archive.restore import restore_day

    place = open_archive_place(archive_url)

    async def run(database: Database) -> None:
        for parent in await _parents(database, day):
            rows = await restore_day(database, place, parent, day, keep_s=keep_s)
            echo(f"✔ {day} {TABLES[parent]}: {rows:,} rows restored")

    _run(database_url, run)


async def _parents(database: Database, day: date) -> list[Parent]:
    async with database.connection() as connection:
        found = await archives.archived_days(connection, day=day)
    if parents := [one.parent for one in found if one.state == "dropped"]:
        return parents
    raise NotFound(f"{day} is not in the archive; see mainspring archive list")

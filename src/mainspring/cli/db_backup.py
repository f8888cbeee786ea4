"""`mainspring db backup`, `verify` and `restore`: backups with a checksummed manifest."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from datetime import datetime
from pathlib import Path

import click
import msgspec

from mainspring import __version__
from mainspring.cli.confirm import confirm
from mainspring.cli.output import echo
from mainspring.cli.server_settings import session_url_option
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.embedded import dump as programs
from mainspring.store.backup_facts import LAST_STATEMENT, Snapshot, counted_rows, exported_snapshot, is_empty
from mainspring.store.db import SCHEMA
from mainspring.store.migrate import migrations, require_schema

MANIFEST = ".manifest.json"
MAX_MANIFEST_BYTES = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup file contains; stored beside it."""

    format: int = 1
    file: str
    bytes: int
    sha256: str
    taken_at: datetime
    decided_upto: datetime
    mainspring_version: str
    schema_version: int
    server_version: str
    rows: dict[str, int]


@click.command
@session_url_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(database_url: str, file: Path) -> None:
    """Write a consistent backup to FILE, while the cluster runs, and FILE.manifest.json beside it.

    Contains all data of Mainspring except artifacts. Keep it as safe as the database: parameters and output are in it.
    """
    if file.exists():
        raise Conflict(f"{file} exists; choose another name")
    manifest = asyncio.run(_backup(database_url, file))
    echo(f"✔ {file}: {manifest.bytes:,} bytes, schema {manifest.schema_version}, taken at {manifest.taken_at}")


async def _backup(url: str, file: Path) -> Manifest:
    await require_schema(url, as_owner=True)
    part = file.with_name(f"{file.name}.part")
    _create(part)
    try:
        async with exported_snapshot(url) as snapshot:
            await asyncio.to_thread(programs.dump, url, part, schema=SCHEMA, snapshot=snapshot.name)
        manifest = await asyncio.to_thread(_describe, part, file.name, snapshot)
        manifest_file(file).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        os.replace(part, file)
        return manifest
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # of the connection to the database
        raise Invalid(f"{file}: cannot write the backup: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _create(part: Path) -> None:
    try:
        part.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise Conflict(
            f"{part} exists: another backup writes it, or was interrupted; remove it if none is running"
        ) from None
    except OSError as error:
        raise Invalid(f"{part}: cannot write the backup: {error.strerror}") from None


def _describe(part: Path, name: str, snapshot: Snapshot) -> Manifest:
    with part.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        os.fsync(opened.fileno())
    return Manifest(
        file=name,
        bytes=part.stat().st_size,
        sha256=digest,
        taken_at=snapshot.taken_at,
        decided_upto=snapshot.decided_upto,
        mainspring_version=__version__,
        schema_version=snapshot.schema_version,
        server_version=snapshot.server_version,
        rows=snapshot.rows,
    )


def manifest_file(file: Path) -> Path:
    return file.with_name(file.name + MANIFEST)


def checked_manifest(file: Path) -> Manifest:
    """Return the manifest of a backup whose size and checksum match it; anything else is an error that says why."""
    beside = manifest_file(file)
    for path in (file, beside):
        if not path.is_file():
            raise NotFound(f"{path} does not exist")
    with beside.open("rb") as opened:
        content = opened.read(MAX_MANIFEST_BYTES)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{beside}: not a manifest of a backup: {error}") from None
    size = file.stat().st_size
    if size != manifest.bytes:
        raise Invalid(f"{file}: has {size:,} bytes, its manifest says {manifest.bytes:,}: the file is incomplete")
    with file.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != manifest.sha256:
            raise Invalid(f"{file}: the checksum differs from its manifest: the file is damaged")
    if manifest.schema_version > migrations()[-1].number:
        raise Invalid(f"{file}: has schema {manifest.schema_version}, newer than this program: upgrade mainspring here")
    return manifest


@click.command
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def verify(file: Path) -> None:
    """Check a backup: its manifest, its checksum, and that every row of it can be read. Needs no database."""
    manifest = checked_manifest(file)
    tables = sum(" TABLE DATA " in line for line in programs.listing(file).splitlines())
    programs.read_through(file)
    echo(f"✔ {file}: {tables} tables, schema {manifest.schema_version}, taken at {manifest.taken_at}")


@click.command
@session_url_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def restore(database_url: str, file: Path, yes: bool) -> None:
    """Restore a backup into an empty database, all or nothing. Firing is held afterwards, until `db resume`.

    The backup does not contain what happened after it. So no scheduler fires and no worker registers until an operator
    has decided what that gap means.
    """
    manifest = checked_manifest(file)
    if not asyncio.run(is_empty(database_url)):
        raise Conflict(
            "the database has a Mainspring schema; restore into an empty database, and point the servers there"
        )
    confirm(f"Restore {file}, taken at {manifest.taken_at}?", yes=yes)
    last = LAST_STATEMENT.format(backup_at=manifest.taken_at.isoformat())
    programs.restore(database_url, file, file.with_name(f"{file.name}.{os.getpid()}.sql"), last=last)
    rows = asyncio.run(counted_rows(database_url))
    if rows != manifest.rows:
        different = sorted(
            name for name in rows.keys() | manifest.rows.keys() if rows.get(name) != manifest.rows.get(name)
        )
        raise Invalid(f"restored, but these tables differ from the manifest: {', '.join(different)}; do not use it")
    echo(f"✔ restored {file}; firing is held. Next: mainspring db resume --gap skip|run|ask")

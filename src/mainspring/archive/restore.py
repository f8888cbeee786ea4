"""Verifies days of the archive, and restores them into their partitions. By the owner of the schema."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

from mainspring.archive.columns import COLUMNS
from mainspring.archive.encode import check, csv_of
from mainspring.archive.write import fetch
from mainspring.backends.archive_places import ArchivePlace
from mainspring.domain.errors import Conflict
from mainspring.store import archives
from mainspring.store.archives import CONTENTS, ArchiveFile, Content, Parent
from mainspring.store.db import Database


async def verify_day(database: Database, place: ArchivePlace, parent: Parent, day: date) -> list[ArchiveFile]:
    """Read every file of a day and compare it with the catalogue; raise Damaged or FileNotFoundError."""
    async with database.connection() as connection:
        files = await archives.files_of_day(connection, parent=parent, day=day)
    with tempfile.TemporaryDirectory(prefix="mainspring-archive-") as folder:
        for file in files:
            await asyncio.to_thread(_verify, place, file, Path(folder) / "file.parquet")
    return files


def _verify(place: ArchivePlace, file: ArchiveFile, path: Path) -> None:
    fetch(place, file, path)
    check(path, file)


async def restore_day(database: Database, place: ArchivePlace, parent: Parent, day: date, *, keep_s: float) -> int:
    """Restore a day in one transaction; return its rows. The files stay; after `keep_s` the partition is dropped."""
    rows = 0
    with tempfile.TemporaryDirectory(prefix="mainspring-archive-") as folder:
        path = Path(folder) / "file.parquet"
        async with database.transaction() as connection:
            if not await archives.begin_restore(connection, parent=parent, day=day):
                raise Conflict(f"{parent} of {day} is not in the archive only; see mainspring archive list")
            files = await archives.files_of_day(connection, parent=parent, day=day)
            for content in CONTENTS[parent]:
                for file in [file for file in files if file.content == content]:
                    await asyncio.to_thread(_verify, place, file, path)
                    columns = [name for name, _ in COLUMNS[content].stored]
                    await archives.restore_rows(
                        connection, content=content, day=day, columns=columns, csv=_csv(path, content)
                    )
                    rows += file.rows if content == parent else 0
            await archives.end_restore(connection, parent=parent, day=day, keep_s=keep_s)
    return rows


async def _csv(path: Path, content: Content) -> AsyncIterator[bytes]:
    chunks = csv_of(path, content)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk

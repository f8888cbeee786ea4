"""Writes days to the archive: copy, encode, store, read back, record, and only then drop the partition.

Each step can be repeated, and a writer that was paused or cut off can complete nothing: a day has one writer, whose id
is part of the names of its files. Whatever interrupts it, the rows are in the partition, in the archive, or in both.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import structlog

from mainspring.archive.encode import Encoded, check, encode_day, folder_of
from mainspring.backends.archive_places import ArchivePlace
from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import MainspringError
from mainspring.ids import new_id
from mainspring.store import archives
from mainspring.store.archives import CONTENTS, ArchiveFile, Candidate, Content, Parent
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

READ_BACK_BYTES = 8 << 20
LOOKED_AT = 100
EXPIRED_AT_ONCE = 100
Step = Callable[[str], None]
"""Called with the name of each step that is complete: began, copied, stored, verified, recorded, dropped."""


class NotArchived(MainspringError):
    """The rows of a day changed while it was archived; the next round writes it again."""

    code = "archive_changed"


class ArchiveWriter:
    """Archives days. One leader at a time uses it; a second one does no harm."""

    def __init__(
        self,
        database: Database,
        place: ArchivePlace,
        *,
        clock: Clock | None = None,
        leads: Callable[[], bool] = lambda: True,
        step: Step = lambda _: None,
    ) -> None:
        self._database = database
        self._place = place
        self._clock = clock or SystemClock()
        self._leads = leads
        self._step = step

    async def archive_all(self, parent: Parent, *, after_s: float) -> list[date]:
        """Archive every day that ended `after_s` ago, oldest first, while this process leads; return the days."""
        async with self._database.connection() as connection:
            found = await archives.candidates(connection, parent=parent, after_s=after_s, limit=LOOKED_AT)
        done = []
        for candidate in found:
            if not self._leads():
                break
            if await self._archive(parent, candidate):
                done.append(candidate.day)
        return done

    async def _archive(self, parent: Parent, candidate: Candidate) -> bool:
        if candidate.written and candidate.write_id is not None:  # interrupted before the partition was dropped
            match await self._drop(parent, candidate.day, candidate.write_id):
                case "dropped":
                    return True
                case "outdated" | "locked" | "absent":
                    return False
        write_id = new_id(self._clock.now_ms())
        try:
            return await self._write(parent, candidate.day, write_id)
        except Exception as error:
            async with self._database.connection() as connection:
                await archives.record_failure(
                    connection, parent=parent, day=candidate.day, write_id=write_id, error=str(error) or repr(error)
                )
            raise

    async def _write(self, parent: Parent, day: date, write_id: UUID) -> bool:
        async with self._database.transaction() as connection:
            if not await archives.begin_day(connection, parent=parent, day=day, write_id=write_id):
                return False
        self._step("began")
        await asyncio.to_thread(self._sweep, parent, day)
        files: list[ArchiveFile] = []
        with tempfile.TemporaryDirectory(prefix="mainspring-archive-") as folder:
            for content in CONTENTS[parent]:
                files += await self._write_content(content, day, write_id, Path(folder))
        async with self._database.connection() as connection:
            if not await archives.record_files(connection, parent=parent, day=day, write_id=write_id, files=files):
                await asyncio.to_thread(self._delete, [file.name for file in files])
                return False
        self._step("recorded")
        outcome = await self._drop(parent, day, write_id)
        if outcome == "changed":
            raise NotArchived(f"{parent} of {day}: rows were added after the copy")
        if outcome == "dropped":
            self._step("dropped")
            for file in files:
                metrics.ARCHIVED_ROWS.labels(file.content).inc(file.rows)
                metrics.ARCHIVED_BYTES.labels(file.content).inc(file.size)
            rows, size = sum(file.rows for file in files if file.content == parent), sum(file.size for file in files)
            log.info("archive.written", table=parent, day=str(day), rows=rows, bytes=size, files=len(files))
        return outcome == "dropped"

    async def _write_content(self, content: Content, day: date, write_id: UUID, folder: Path) -> list[ArchiveFile]:
        csv = folder / "copy.csv"
        with csv.open("wb") as target:
            async with self._database.connection() as connection:
                await archives.copy_day(connection, content=content, day=day, write=_into(target))
        self._step("copied")
        encoded = await asyncio.to_thread(encode_day, csv, folder, content=content, day=day, write_id=write_id)
        for file in encoded:
            await asyncio.to_thread(self._store, file)
        return [file.entry for file in encoded]

    def _store(self, file: Encoded) -> None:
        """Store a file, read it back and compare."""
        self._place.store(file.entry.name, file.path)
        self._step("stored")
        file.path.unlink()
        fetch(self._place, file.entry, file.path)
        check(file.path, file.entry)
        file.path.unlink()
        self._step("verified")

    async def _drop(self, parent: Parent, day: date, write_id: UUID) -> str:
        try:
            async with self._database.connection() as connection:
                return await archives.drop_archived(connection, parent=parent, day=day, write_id=write_id)
        except archives.LockTimeout:
            return "locked"  # a long query reads the table; the next round drops the partition

    def _sweep(self, parent: Parent, day: date) -> None:
        """Delete the files of interrupted writers of this day. The catalogue has none of them any more."""
        for content in CONTENTS[parent]:
            self._delete(list(self._place.names(folder_of(content, day))))

    def _delete(self, names: list[str]) -> None:
        for name in names:
            self._place.delete(name)

    async def forget(self, *, keep_s: float | None) -> None:
        """Delete the files of deleted tenants, and the days whose retention has ended."""
        async with self._database.connection() as connection:
            while names := await archives.files_of_deleted_tenants(connection, limit=EXPIRED_AT_ONCE):
                await asyncio.to_thread(self._delete, names)
                await archives.forget_files(connection, names=names)
            if keep_s is None:
                return
            for parent, day in await archives.expired_days(connection, after_s=keep_s, limit=EXPIRED_AT_ONCE):
                await asyncio.to_thread(self._sweep, parent, day)
                await archives.forget_day(connection, parent=parent, day=day)
                log.info("archive.expired", table=parent, day=str(day))


def fetch(place: ArchivePlace, entry: ArchiveFile, path: Path) -> None:
    """Read a file of the archive into a local one."""
    with path.open("wb") as target:
        for start in range(0, entry.size, READ_BACK_BYTES):
            target.write(place.read(entry.name, start, min(entry.size, start + READ_BACK_BYTES)))


def _into(target: BinaryIO) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    """Write chunks of a copy into the page cache at once: a thread per chunk would cost more."""

    async def write(chunk: bytes) -> None:
        target.write(chunk)

    return write

"""Reads executions, attempts and output from the archive, within a budget of bytes and time.

A read downloads the footer of a file once, and then single row groups. The next page continues what exceeds the budget.
"""

from __future__ import annotations

import asyncio
import bisect
import io
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from mainspring import wire
from mainspring.archive import job_filter
from mainspring.archive.turns import ReadTurns
from mainspring.backends.archive_places import ArchivePlace
from mainspring.clock import LAST_MS
from mainspring.domain.errors import Unavailable
from mainspring.store import archives
from mainspring.store.archives import ArchiveFile
from mainspring.store.db import Database
from mainspring.store.logs import LogRow

log = structlog.get_logger()
T = TypeVar("T")

READ_BYTES = 64 << 20
READ_S = 5.0
"""A page reads about this many bytes, for this time."""
FILES_PER_READ = 60
FOOTERS = 64
"""Footers that are kept: a file never changes."""


INFINITE_US = LAST_MS * 1000


class Spent(Exception):
    """The budget of a read is used up."""


@dataclass(slots=True)
class Budget:
    bytes: int
    until: float

    def take(self, count: int) -> None:
        if self.bytes <= 0 or time.monotonic() > self.until:
            raise Spent
        self.bytes -= count


@dataclass(frozen=True, slots=True)
class ArchivedPage:
    """Executions of the archive, newest first. `complete_above`: older ones than this id have not been looked for."""

    items: list[wire.Execution]
    complete_above: UUID | None


class ArchiveReader:
    """The reads of an api process. Works for all tenants: a file has rows of one."""

    def __init__(self, place: ArchivePlace) -> None:
        self._place = place
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._turns = ReadTurns()

    async def execution(self, database: Database, execution_id: UUID, *, tenant: int) -> wire.Execution | None:
        """An execution with its attempts; None if the archive does not have it."""
        row = await self._find(database, "history", execution_id, tenant=tenant)
        if not row:
            return None
        found = _execution(row[0])
        if found.attempt > 1 or (found.attempt == 1 and found.state != "succeeded"):
            attempts = await self._find(database, "attempts", execution_id, tenant=tenant)
            found.attempts.extend(_attempt(a) for a in sorted(attempts, key=lambda a: a["attempt"]))
        return found

    async def output(self, database: Database, execution_id: UUID, *, tenant: int) -> list[LogRow]:
        """All chunks of output, in order, as far as the budget allows."""
        rows = await self._find(database, "log_chunks", execution_id, tenant=tenant, every=True)
        found = [(r["attempt"], r["seq"], r["stream"], r["data"], r["received_at"]) for r in rows]
        return sorted(found, key=lambda chunk: chunk[:2])

    async def _find(
        self,
        database: Database,
        content: archives.Content,
        execution_id: UUID,
        *,
        tenant: int,
        every: bool = False,
    ) -> list[dict[str, Any]]:
        """The rows of an execution in the first file that has some, or in all: attempts begin on several days."""
        async with database.connection() as connection:
            files = await archives.archives_with(
                connection, tenant=tenant, content=content, execution_id=execution_id, limit=FILES_PER_READ
            )
        if not files:
            return []
        return await self._read(tenant, lambda budget: self._rows_of(files, execution_id, budget, every=every))

    async def page(
        self,
        database: Database,
        *,
        tenant: int,
        above: UUID,
        before: UUID,
        limit: int,
        job_id: UUID | None = None,
        states: Sequence[str] = (),
    ) -> ArchivedPage:
        """The latest executions between two ids: at most `limit`, and as many as the budget allows."""
        async with database.connection() as connection:
            files = await archives.archives_before(
                connection, tenant=tenant, above=above, before=before, limit=FILES_PER_READ + 1
            )
        if not files:
            return ArchivedPage([], None)
        rest = files[FILES_PER_READ].last_id if len(files) > FILES_PER_READ else None
        wanted = [f for f in files[:FILES_PER_READ] if _may_have(f, job_id)]
        if not wanted:
            return ArchivedPage([], rest)
        search = _Search(above, before, limit, job_id, frozenset(states))
        return await self._read(tenant, lambda budget: self._search(wanted, search, rest, budget))

    async def _read(self, tenant: int, read: Callable[[Budget], T]) -> T:
        await self._turns.take(tenant)
        budget = Budget(READ_BYTES, time.monotonic() + READ_S)
        reading = asyncio.get_running_loop().run_in_executor(None, read, budget)
        # The thread keeps its turn if the request is cancelled: it still holds memory.
        reading.add_done_callback(lambda done: self._ended(tenant, done))
        try:
            return await asyncio.shield(reading)
        except Spent:
            raise Unavailable("the archive did not respond in time; repeat the request", code="archive_slow") from None
        except FileNotFoundError:
            message = "a file of the archive is missing; see mainspring archive verify"
            raise Unavailable(message, code="archive") from None
        except Exception as error:
            log.warning("archive.unreadable", error=repr(error))
            message = "the archive is not readable; the log of the server says why"
            raise Unavailable(message, code="archive") from None

    def _ended(self, tenant: int, reading: asyncio.Future[T]) -> None:
        if not reading.cancelled():
            reading.exception()  # of a cancelled request, which does not ask for it
        self._turns.give_back(tenant)

    def _rows_of(
        self, files: Sequence[ArchiveFile], execution_id: UUID, budget: Budget, *, every: bool
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in files:
            with self._open(file, budget) as parquet:
                for group, (low, high) in enumerate(_id_ranges(parquet.metadata)):
                    if low <= str(execution_id) <= high:
                        table = parquet.read_row_group(group)
                        found += _rows(table.filter(pc.equal(table["execution_id"], str(execution_id))))
            if found and not every:
                break
        return found

    def _search(self, files: Sequence[ArchiveFile], search: _Search, rest: UUID | None, budget: Budget) -> ArchivedPage:
        """Files with the latest ids first; days overlap only by executions that were late."""
        items: list[wire.Execution] = []
        done_to = rest
        for file, following in zip(files, [*files[1:], None], strict=True):
            if search.is_full(items, file.last_id):
                done_to = None
                break
            low = self._search_file(file, search, items, budget)
            if low is not None:
                done_to = max(low, following.last_id if following is not None else rest or low)
                break
        if done_to is not None and done_to.int + 1 >= search.before.int:
            raise Spent  # the next page would be the same one
        items.sort(key=lambda e: e.execution_id, reverse=True)
        if done_to is not None:
            items = [e for e in items if e.execution_id > done_to]
        return ArchivedPage(items[: search.limit], done_to)

    def _search_file(
        self, file: ArchiveFile, search: _Search, items: list[wire.Execution], budget: Budget
    ) -> UUID | None:
        """Add the matches of a file; return the id above which it was searched, or None if that is all of it."""
        count, done_to = 0, file.last_id
        try:
            with self._open(file, budget) as parquet:
                for group, (low, high) in reversed(list(enumerate(_id_ranges(parquet.metadata)))):
                    if high <= str(search.above) or low >= str(search.before):
                        continue
                    if rows := search.matches(parquet.read_row_group(group, columns=search.columns)):
                        table = parquet.read_row_group(group).take(pa.array(rows[-search.limit :]))
                        items += map(_execution, _rows(table))
                        count += len(rows)
                    if count >= search.limit:
                        break
                    done_to = UUID(low)
        except Spent:
            return done_to
        return None

    def _open(self, file: ArchiveFile, budget: Budget) -> pq.ParquetFile:
        source = _RangeFile(self._place, file, budget)
        known = self._footers.get(file.name)
        parquet = pq.ParquetFile(source, metadata=known, page_checksum_verification=True)
        if known is None:
            self._footers[file.name] = parquet.metadata
            while len(self._footers) > FOOTERS:
                self._footers.popitem(last=False)
        return parquet


@dataclass(frozen=True, slots=True)
class _Search:
    above: UUID
    before: UUID
    limit: int
    job_id: UUID | None
    states: frozenset[str]

    @property
    def columns(self) -> list[str]:
        return ["execution_id", *(["job_id"] if self.job_id else []), *(["state"] if self.states else [])]

    def matches(self, table: pa.Table) -> list[int]:
        """The numbers of the rows that match, in the order of their ids."""
        ids = table["execution_id"]
        mask = pc.and_(pc.less(ids, str(self.before)), pc.greater(ids, str(self.above)))
        if self.job_id is not None:
            mask = pc.and_(mask, pc.equal(table["job_id"], str(self.job_id)))
        if self.states:
            mask = pc.and_(mask, pc.is_in(table["state"], pa.array(sorted(self.states))))
        rows: list[int] = pc.indices_nonzero(mask).to_pylist()
        return rows

    def is_full(self, items: Sequence[wire.Execution], last_id: UUID) -> bool:
        """Whether the page has all it can have above the last id of the next file."""
        ids = sorted(e.execution_id for e in items)
        return len(ids) - bisect.bisect_right(ids, last_id) >= self.limit


class _RangeFile(io.RawIOBase):
    """A file of the archive that is read by ranges."""

    def __init__(self, place: ArchivePlace, file: ArchiveFile, budget: Budget) -> None:
        self._place = place
        self._file = file
        self._budget = budget
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._file.size if size is None or size < 0 else min(self._file.size, self._at + size)
        if end <= self._at:
            return b""
        self._budget.take(end - self._at)
        data = self._place.read(self._file.name, self._at, end)
        self._at += len(data)
        return data


def _id_ranges(metadata: pq.FileMetaData) -> Iterator[tuple[str, str]]:
    """The lowest and the highest id of each row group."""
    column = metadata.schema.names.index("execution_id")
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        yield statistics.min, statistics.max


def _may_have(file: ArchiveFile, job_id: UUID | None) -> bool:
    if job_id is None or file.jobs is None:
        return True
    return job_filter.may_contain(file.jobs, job_id)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as values. A due time of infinity, of a fire that a pause held, becomes the fire time."""
    if "fire_at" in table.column_names:
        due_at = table["due_at"]
        held = pc.greater_equal(due_at.cast(pa.int64()), INFINITE_US)
        place = table.schema.get_field_index("due_at")
        table = table.set_column(place, table.schema.field(place), pc.if_else(held, table["fire_at"], due_at))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _execution(r: dict[str, Any]) -> wire.Execution:
    return wire.Execution(
        execution_id=UUID(r["execution_id"]),
        job_id=UUID(r["job_id"]),
        job=r["job"] or "",
        version=r["version"],
        state=r["state"],
        trigger=r["trigger"],
        queue=r["queue"],
        priority=r["priority"],
        attempt=r["attempt"],
        fire_at=r["fire_at"],
        due_at=r["due_at"],
        queued_at=r["queued_at"],
        started_at=_started(r),
        finished_at=r["finished_at"],
        duration_ms=r["duration_ms"],
        exit_code=r["exit_code"],
        worker=r["worker"],
        cancelling=False,
        reason=r["reason"],
        error=r["error"],
        result=_json(r["result"]),
        params=_json(r["params"]),
        created_by=r["created_by"],
        fires=r["fires"],
        backfill_id=None if r["backfill_id"] is None else UUID(r["backfill_id"]),
    )


def _started(r: dict[str, Any]) -> datetime | None:
    started: datetime | None = r["started_at"]
    return None if r["session_id"] is None else started


def _attempt(r: dict[str, Any]) -> wire.Attempt:
    return wire.Attempt(
        attempt=r["attempt"],
        outcome=r["outcome"],
        exit_code=r["exit_code"],
        error=r["error"],
        started_at=r["started_at"],
        ended_at=r["ended_at"],
        worker=r["worker"],
        due_at=r["due_at"],
        queued_at=r["queued_at"],
        duration_ms=r["duration_ms"],
    )


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)

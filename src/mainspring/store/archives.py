"""The catalogue of the archive, copies of days of history and output, and their restore."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from mainspring.store.db import Connection
from mainspring.store.queries import q

Parent = Literal["history", "log_chunks"]
Content = Literal["history", "attempts", "log_chunks"]
CONTENTS: dict[Parent, tuple[Content, ...]] = {"history": ("history", "attempts"), "log_chunks": ("log_chunks",)}
COPY_TIMEOUT_S = 6 * 3600.0
LockTimeout = asyncpg.LockNotAvailableError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A day that is to be archived; `written`: its files are stored, the partition is still there."""

    day: date
    written: bool
    write_id: UUID | None


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of the archive: rows of one tenant, one table and one day."""

    name: str
    day: date
    tenant: int
    content: Content
    rows: int
    size: int
    sha256: bytes
    first_id: UUID
    last_id: UUID
    jobs: bytes | None  # Bloom filter


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    parent: Parent
    day: date
    state: str
    write_id: UUID
    started_at: datetime
    written_at: datetime | None
    restored_until: datetime | None
    error: str | None
    files: int
    rows: int
    size: int


def bounds(day: date) -> tuple[datetime, datetime]:
    """The first instant of a day and of the next one, in UTC."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start, start + timedelta(days=1)


async def candidates(connection: Connection, *, parent: Parent, after_s: float, limit: int) -> list[Candidate]:
    """The oldest days that ended `after_s` ago and still have a partition."""
    rows = await connection.fetch(q("archive_candidates"), parent, after_s, limit)
    return [Candidate(r["day"], r["state"] in ("written", "restored"), r["write_id"]) for r in rows]


async def begin_day(connection: Connection, *, parent: Parent, day: date, write_id: UUID) -> bool:
    """Make the caller the writer of a day, in a transaction; False if the day is only in the archive already."""
    if await connection.fetchval(q("begin_archive"), parent, day, write_id) is None:
        return False
    await connection.execute(q("forget_files_of_day"), parent, day)
    return True


async def record_failure(connection: Connection, *, parent: Parent, day: date, write_id: UUID, error: str) -> None:
    await connection.execute(q("archive_failed"), parent, day, write_id, error[:500])


async def copy_day(
    connection: Connection, *, content: Content, day: date, write: Callable[[bytes], Coroutine[Any, Any, None]]
) -> None:
    """Write the rows of a day as CSV, by tenant and id."""
    query = {"history": q("copy_history"), "attempts": q("copy_attempts"), "log_chunks": q("copy_log_chunks")}[content]
    await connection.copy_from_query(query, *bounds(day), output=write, format="csv", timeout=COPY_TIMEOUT_S)


async def record_files(
    connection: Connection, *, parent: Parent, day: date, write_id: UUID, files: Sequence[ArchiveFile]
) -> bool:
    """Complete a day; False if another writer has taken it over."""
    columns = [
        [f.name for f in files],
        [f.tenant for f in files],
        [f.content for f in files],
        [f.rows for f in files],
        [f.size for f in files],
        [f.sha256 for f in files],
        [f.first_id for f in files],
        [f.last_id for f in files],
        [f.jobs for f in files],
    ]
    return bool(await connection.fetchval(q("record_archives"), parent, day, write_id, *columns))


async def drop_archived(connection: Connection, *, parent: Parent, day: date, write_id: UUID) -> str:
    """Drop the partition of a day; `changed` if it has rows that the archive has not. Raises LockTimeout."""
    return str(await connection.fetchval(q("drop_archived"), parent, day, write_id, timeout=COPY_TIMEOUT_S))


async def archives_with(
    connection: Connection, *, tenant: int, content: Content, execution_id: UUID, limit: int
) -> list[ArchiveFile]:
    """Files that may have an execution, the earliest day first."""
    return _files(await connection.fetch(q("archives_with"), tenant, content, execution_id, limit))


async def archives_before(
    connection: Connection, *, tenant: int, above: UUID, before: UUID, limit: int
) -> list[ArchiveFile]:
    """Files of history with executions between two ids, the latest first."""
    return _files(await connection.fetch(q("archives_before"), tenant, above, before, limit))


async def archived_days(connection: Connection, *, day: date | None = None, limit: int = 1_000) -> list[ArchivedDay]:
    return [ArchivedDay(*r.values()) for r in await connection.fetch(q("archived_days"), day, limit)]


async def files_of_day(connection: Connection, *, parent: Parent, day: date) -> list[ArchiveFile]:
    return _files(await connection.fetch(q("files_of_day"), parent, day))


async def expired_days(connection: Connection, *, after_s: float, limit: int) -> list[tuple[Parent, date]]:
    """Days that ended `after_s` ago and are only in the archive."""
    return [(r["parent"], r["day"]) for r in await connection.fetch(q("expired_archives"), after_s, limit)]


async def forget_day(connection: Connection, *, parent: Parent, day: date) -> None:
    await connection.execute(q("forget_archive_day"), parent, day)


async def files_of_deleted_tenants(connection: Connection, *, limit: int) -> list[str]:
    return [r["name"] for r in await connection.fetch(q("archives_of_deleted_tenants"), limit)]


async def forget_files(connection: Connection, *, names: Sequence[str]) -> None:
    await connection.execute(q("forget_archives"), list(names))


async def lag_days(connection: Connection, *, parent: Parent, after_s: float) -> int:
    """Days that ended `after_s` ago and still have a partition."""
    return int(await connection.fetchval(q("archive_lag"), parent, after_s))


async def begin_restore(connection: Connection, *, parent: Parent, day: date) -> bool:
    """Lock a day that is only in the archive, in a transaction, and create its partition; False if it is not."""
    if await connection.fetchval(q("lock_archived_day"), parent, day) is None:
        return False
    await connection.execute(q("create_restored_partition"), parent, day)
    return True


async def restore_rows(
    connection: Connection, *, content: Content, day: date, columns: Sequence[str], csv: AsyncIterable[bytes]
) -> None:
    """Insert the rows of a file, given as CSV, into the partition that `begin_restore` made."""
    await connection.execute(q("create_restored_rows"), list(columns))
    await connection.copy_to_table(
        "restored_rows", source=csv, columns=list(columns), format="csv", timeout=COPY_TIMEOUT_S
    )
    await connection.execute(q("restore_rows"), content, day, timeout=COPY_TIMEOUT_S)


async def end_restore(connection: Connection, *, parent: Parent, day: date, keep_s: float) -> None:
    await connection.execute(q("attach_restored_partition"), parent, day, keep_s, timeout=COPY_TIMEOUT_S)


def _files(rows: Sequence[Any]) -> list[ArchiveFile]:
    return [ArchiveFile(*r.values()) for r in rows]

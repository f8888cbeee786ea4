"""Resolve what requests refer to: names, ids, id prefixes, cursors, page sizes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mainspring.domain.errors import Invalid, NotFound, Problem, invalid
from mainspring.domain.job import NAME
from mainspring.domain.suggestion import closest
from mainspring.store import executions, jobs
from mainspring.store.db import Connection, Database
from mainspring.store.jobs import JobRow

MAX_PAGE = 500
SHORTEST_PREFIX = 8
MAX_DELETED = 20
"""Deleted jobs that one name stands for."""
_AFTER_ALL = UUID(int=(1 << 128) - 1)


async def job_row(database: Database, ref: str, *, tenant: int) -> JobRow:
    """A job by name or id."""
    async with database.connection() as connection:
        return await known_job(connection, ref, tenant=tenant)


async def known_job(connection: Connection, ref: str, *, tenant: int) -> JobRow:
    """A job by name or id, on a given connection."""
    row = await find_job(connection, ref, tenant=tenant)
    if row is None:
        raise await _no_job(connection, ref, tenant=tenant)
    return row


async def past_job(database: Database, ref: str, *, tenant: int) -> JobRow:
    """A job by name or id, for reading what happened; without one of that name, the latest deleted one."""
    async with database.connection() as connection:
        row = await find_job(connection, ref, tenant=tenant)
        if row is None and NAME.match(ref):
            row = await jobs.deleted_job_by_name(connection, tenant=tenant, name=ref)
        if row is None:
            raise await _no_job(connection, ref, tenant=tenant)
    return row


async def known_jobs(connection: Connection, ref: str, *, tenant: int) -> list[UUID]:
    """All jobs that a name or id stands for in a search: those that had the name and were deleted belong to it."""
    if is_id(ref) and (row := await jobs.job_by_id(connection, tenant=tenant, job_id=UUID(ref))) is not None:
        return [row.job_id]
    found = await jobs.jobs_of_name(connection, tenant=tenant, name=ref, deleted=MAX_DELETED) if NAME.match(ref) else []
    if not found:
        raise await _no_job(connection, ref, tenant=tenant)
    return found


async def _no_job(connection: Connection, ref: str, *, tenant: int) -> NotFound:
    """The error for a name that no job has: its history is kept if one had it; otherwise the most similar name."""
    if not NAME.match(ref):
        return NotFound(f"there is no job {ref!r}")
    if (row := await jobs.deleted_job_by_name(connection, tenant=tenant, name=ref)) is not None:
        history = f"its history is kept: mainspring jobs history {ref}"
        return NotFound(f"the job {ref!r} was deleted at {row.deleted_at:%Y-%m-%d %H:%M:%S} UTC; {history}")
    message = f"there is no job {ref!r}"
    if (close := closest(ref, await jobs.similar_names(connection, tenant=tenant, name=ref))) is None:
        return NotFound(message)
    hint = f"did you mean {close!r}?"
    return NotFound(f"{message}; {hint}", problems=(Problem("", message, hint),))


async def find_job(connection: Connection, ref: str, *, tenant: int) -> JobRow | None:
    row = None
    if is_id(ref):
        row = await jobs.job_by_id(connection, tenant=tenant, job_id=UUID(ref))
    if row is None and NAME.match(ref):
        row = await jobs.job_by_name(connection, tenant=tenant, name=ref)
    return row


async def execution_id(database: Database, ref: str, *, tenant: int) -> UUID:
    """An execution's id, from the whole id or a unique prefix of at least 8 hex digits."""
    if is_id(ref):
        return UUID(ref)
    digits = ref.replace("-", "").lower()
    if not SHORTEST_PREFIX <= len(digits) <= 32 or not all(c in "0123456789abcdef" for c in digits):
        raise NotFound(
            f"{ref!r} is not an execution id; give the whole id or at least its first {SHORTEST_PREFIX} digits"
        )
    async with database.connection() as connection:
        found = await executions.execution_prefix(connection, tenant=tenant, prefix=digits)
    if not found:
        raise NotFound(f"there is no execution {ref!r}")
    if len(found) > 1:
        raise Invalid(f"several executions begin with {ref!r}; give more digits", code="ambiguous_id")
    return found[0]


async def run_id(database: Database, ref: str, *, tenant: int) -> UUID:
    """A run's id, from the whole id or a unique prefix. A run has the id of its execution."""
    try:
        return await execution_id(database, ref, tenant=tenant)
    except NotFound:
        raise NotFound(f"there is no run {ref!r}") from None


def is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def bad_cursor() -> Invalid:
    return invalid("/cursor", "invalid cursor", hint="pass next_cursor of the previous page unchanged")


def number_cursor(cursor: str | None, *, digits: int = 9) -> int | None:
    """The number before which a page, newest first, begins; None for the first page."""
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= digits):
        raise bad_cursor()
    return int(cursor) if cursor else None


def time_cursor(cursor: str | None) -> tuple[datetime, UUID] | None:
    """The instant and the id before which a page, newest first, begins; None for the first page."""
    if cursor is None:
        return None
    at, _, ref = cursor.partition("_")
    try:
        position = datetime.fromisoformat(at)
    except ValueError:
        raise bad_cursor() from None
    if position.tzinfo is None or not is_id(ref):
        raise bad_cursor()
    return position, UUID(ref)


def parse_cursor(cursor: str | None) -> UUID:
    """The id before which a page, newest first, begins."""
    if cursor is not None and not is_id(cursor):
        raise bad_cursor()
    return UUID(cursor) if cursor else _AFTER_ALL


def check_limit(limit: int, pointer: str = "/limit") -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(pointer, f"{limit} is out of range", hint=f"between 1 and {MAX_PAGE}")

"""Search jobs and executions by a filter. A page may be short, or empty, and still have a next one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import invalid
from mainspring.domain.filter import DELETED, ExecutionFilter, JobFilter, execution_filter, job_filter
from mainspring.domain.job import NAME
from mainspring.store import executions, search
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.search import JobStats
from mainspring.views import jobs as job_views
from mainspring.views import refs

MAX_JOBS = 200
"""A filter on jobs searches the executions of at most this many."""
STATS_SAMPLE = 200
"""Latest executions of each job from which statistics are computed."""


async def jobs(
    database: Database, text: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.Job]:
    """Matching jobs, by name."""
    refs.check_limit(limit)
    wanted = job_filter(text)
    _check_position(cursor or "", wanted)
    async with database.connection() as connection:
        found = await search.search_jobs(connection, wanted, tenant=tenant, after=cursor or "", limit=limit + 1)
        rows = await search.jobs_by_id(connection, tenant=tenant, job_ids=found.ids[:limit])
        page = await job_views.as_jobs(connection, rows, tenant=tenant)
    if len(found.ids) <= limit:
        return wire.Page(items=page, next_cursor=found.floor)
    return wire.Page(items=page, next_cursor=search.position(page[-1].name, page[-1].job_id, wanted))


async def jobs_among(database: Database, job_ids: Sequence[UUID], text: str, *, tenant: int) -> list[wire.Job]:
    """Those of some jobs that match a filter, in their order."""
    wanted = job_filter(text)
    async with database.connection() as connection:
        if wanted:
            found = await search.search_jobs(connection, wanted, tenant=tenant, after="", limit=search.SCAN_LIMIT)
            kept = set(found.ids)
            job_ids = [job_id for job_id in job_ids if job_id in kept]
        rows = await search.jobs_by_id(connection, tenant=tenant, job_ids=job_ids)
        page = {job.job_id: job for job in await job_views.as_jobs(connection, rows, tenant=tenant)}
    return [page[job_id] for job_id in job_ids if job_id in page]


def _check_position(cursor: str, wanted: JobFilter) -> None:
    name, space, job_id = cursor.partition(" ")
    if cursor and (
        not NAME.match(name) or bool(space) != (DELETED in wanted.states) or (space and not refs.is_id(job_id))
    ):
        raise refs.bad_cursor()


async def job_ids(
    database: Database, wanted: JobFilter, *, tenant: int, after: str = "", limit: int
) -> tuple[list[tuple[UUID, str]], str | None]:
    """Ids and names of matching jobs, and the cursor of the next page."""
    async with database.connection() as connection:
        found = await search.search_jobs(connection, wanted, tenant=tenant, after=after, limit=limit + 1)
        rows = await search.jobs_by_id(connection, tenant=tenant, job_ids=found.ids[:limit])
    page = [(row.job_id, row.name) for row in rows]
    if len(found.ids) <= limit:
        return page, found.floor
    return page, search.position(page[-1][1], page[-1][0], wanted)


async def names_of_jobs(database: Database, job_ids: Sequence[UUID], *, tenant: int) -> list[tuple[UUID, str]]:
    """Ids and names of those jobs that exist."""
    async with database.connection() as connection:
        rows = await search.jobs_by_id(connection, tenant=tenant, job_ids=job_ids)
    return [(row.job_id, row.name) for row in rows if row.deleted_at is None]


async def find_executions(
    database: Database, text: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.Execution]:
    """Matching executions, newest first."""
    refs.check_limit(limit)
    before = refs.parse_cursor(cursor)
    async with database.connection() as connection:
        found = await _look(connection, text, tenant=tenant, before=before, limit=limit + 1)
        rows = await executions.executions_by_id(connection, tenant=tenant, execution_ids=found.ids[:limit], early=True)
    page = sorted(rows, key=lambda e: e.execution_id, reverse=True)
    more = len(found.ids) > limit
    floor = found.ids[limit - 1] if more else found.floor
    return wire.Page(items=page, next_cursor=None if floor is None else str(floor))


async def _look(connection: Connection, text: str, *, tenant: int, before: UUID, limit: int) -> search.FoundExecutions:
    wanted = execution_filter(text, int(await database_now_ms(connection)))
    if wanted.until_ms is not None:
        before = min(before, UUID(int=max(0, wanted.until_ms) << 80))
    of = await _jobs_of(connection, wanted, tenant=tenant)
    if of is None:
        return await search.search_executions(connection, wanted, tenant=tenant, before=before, limit=limit)
    return await search.search_executions_of_jobs(
        connection, wanted, tenant=tenant, before=before, limit=limit, job_ids=of
    )


async def count_jobs(database: Database, text: str, *, tenant: int, most: int) -> tuple[int, bool]:
    """Number of matching jobs, up to `most` and within the search bound; and whether it is exact."""
    async with database.connection() as connection:
        found = await search.search_jobs(connection, job_filter(text), tenant=tenant, after="", limit=most + 1)
    return min(most, len(found.ids)), len(found.ids) <= most and found.floor is None


async def count_executions(database: Database, text: str, *, tenant: int, most: int) -> tuple[int, bool, UUID | None]:
    """Number of matching executions, whether it is exact, and the newest one."""
    async with database.connection() as connection:
        found = await _look(connection, text, tenant=tenant, before=refs.parse_cursor(None), limit=most + 1)
    exact = len(found.ids) <= most and found.floor is None
    return min(most, len(found.ids)), exact, found.ids[0] if found.ids else None


async def stats(
    database: Database, job_ids: Sequence[UUID], *, tenant: int, each: int = STATS_SAMPLE, hours: float = 24
) -> dict[UUID, JobStats]:
    """Statistics of the latest executions of some jobs."""
    if not job_ids:
        return {}
    async with database.connection() as connection:
        since = instant(int(await database_now_ms(connection) - hours * 3_600_000))
        return await search.job_stats(connection, tenant=tenant, job_ids=job_ids, since=since, each=each)


async def _jobs_of(connection: Connection, wanted: ExecutionFilter, *, tenant: int) -> list[UUID] | None:
    """The jobs whose executions are searched; None: all."""
    named = [job_id for ref in wanted.jobs for job_id in await refs.known_jobs(connection, ref, tenant=tenant)]
    if not wanted.of_jobs:
        return named or None
    found = await search.search_jobs(connection, wanted.of_jobs, tenant=tenant, after="", limit=MAX_JOBS + 1)
    if len(found.ids) > MAX_JOBS or found.floor is not None:
        hint = "narrow the name, or name one job with job:"
        raise invalid("/filter", f"more than {MAX_JOBS} jobs match", hint=hint, code="bad_filter")
    return [job_id for job_id in found.ids if not named or job_id in named]

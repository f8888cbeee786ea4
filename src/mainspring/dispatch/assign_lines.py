"""Assigns lines where an older version wrote none, or other ones: during an upgrade both run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

from mainspring.domain.placement.line import line_of
from mainspring.store import claims, lines
from mainspring.store.db import Connection, Database
from mainspring.store.lines import Unnamed

BATCH = 1000


async def assign_lines(database: Database) -> None:
    """Repeat until every queued execution has a line, so that none waits for the next slow poll."""
    while True:
        async with database.transaction() as connection:
            for tenant, jobs in (await claims.jobs_without_line(connection, limit=BATCH)).items():
                wanted = [line_of(spec, job_id=job_id) for job_id, spec in jobs.items()]
                refs = await lines.intern_lines(connection, tenant=tenant, specs=wanted)
                await claims.assign_job_lines(connection, tenant=tenant, lines=dict(zip(jobs, refs, strict=True)))
        async with database.connection() as connection:
            if await claims.assign_execution_lines(connection, limit=BATCH) < BATCH:
                return


async def name_functions(database: Database) -> None:
    """Move Python jobs and steps that an older version saved into lines that name their function."""
    after = UUID(int=0)
    while True:
        async with database.transaction() as connection:
            jobs = await lines.jobs_without_function(connection, after=after, limit=BATCH)
            for tenant, moves in await _lines_with_function(connection, jobs):
                await lines.move_jobs(connection, tenant=tenant, moves=moves)
        if len(jobs) < BATCH:
            break
        after = jobs[-1].job_id
    last = (UUID(int=0), 0, 0)
    while True:
        async with database.transaction() as connection:
            steps = await lines.steps_without_function(connection, after=last, limit=BATCH)
            for tenant, moves in await _lines_with_function(connection, steps):
                await lines.move_steps(connection, tenant=tenant, moves=moves)
        if len(steps) < BATCH:
            return
        last = (steps[-1].job_id, *steps[-1].number)


async def _lines_with_function(
    connection: Connection, unnamed: Sequence[Unnamed]
) -> list[tuple[int, list[tuple[Unnamed, int]]]]:
    """The new line of each, by tenant."""
    found = []
    for tenant, group in groupby(sorted(unnamed, key=lambda u: u.tenant), key=lambda u: u.tenant):
        of_tenant = list(group)
        specs = [line_of(u.spec, job_id=u.owner) for u in of_tenant]
        refs = await lines.intern_lines(connection, tenant=tenant, specs=specs)
        found.append((tenant, [(u, ref.line_id) for u, ref in zip(of_tenant, refs, strict=True)]))
    return found

"""Dependencies between jobs."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.workflow.plan import topological
from mainspring.store import needs
from mainspring.store.db import Database
from mainspring.views.refs import job_row


async def dependencies_of(database: Database, ref: str, *, tenant: int) -> wire.Dependencies:
    """The needs of a job with their state, and all connected jobs in execution order."""
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        found = await needs.needs_of(connection, tenant=tenant, child=row.job_id)
        edges = await needs.related_needs(connection, tenant=tenant, job_id=row.job_id)
    names = sorted({name for edge in edges for name in edge} | {row.name})
    number = {name: n for n, name in enumerate(names)}
    before: list[list[int]] = [[] for _ in names]
    for child, parent in edges:
        before[number[child]].append(number[parent])
    return wire.Dependencies(needs=found, order=[names[n] for n in topological(before)])


async def needed_by(database: Database, ref: str, *, tenant: int) -> list[str]:
    """The names of the jobs that need this one."""
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        return [child.name for child in await needs.needing(connection, tenant=tenant, parent=row.job_id)]

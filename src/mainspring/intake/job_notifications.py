"""Notifications of a job: checked against the tenant's channels, and stored with the job."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.store import channels
from mainspring.store.db import Connection


async def write_notifications(connection: Connection, spec: JobSpec, *, tenant: int, job_id: UUID) -> None:
    """Replace the notifications of a job. An unknown channel is refused."""
    wanted = sorted({name for entry in spec.notify for name in entry.to})
    known = await channels.known_channels(connection, tenant=tenant, names=wanted) if wanted else set()
    problems = tuple(
        Problem(f"/notify/{i}/to/{j}", f"there is no channel {name!r}", "add it first: mainspring channels add")
        for i, entry in enumerate(spec.notify)
        for j, name in enumerate(entry.to)
        if name not in known
    )
    if problems:
        raise Invalid(problems[0].message, code="unknown_channel", problems=problems)
    await channels.replace_notifications(connection, tenant=tenant, job_id=job_id, rows=spec.notifications)

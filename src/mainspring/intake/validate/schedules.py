"""A schedule as a job wants it, checked against what the tenant has: the calendars it names."""

from __future__ import annotations

from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.schedule.schedule import Resolved, ScheduleError, ScheduleSpecs, calendars_of, resolve_all
from mainspring.store import calendars
from mainspring.store.db import Connection


async def resolved(
    connection: Connection,
    schedule: ScheduleSpecs,
    *,
    tenant: int,
    now_ms: int,
    seed: str | None,
    pointer: str = "/schedule",
) -> Resolved:
    """The schedule in canonical form, or the problem with it as the user wrote it.

    A writer holds a shard's row before it asks, so that no edit of a calendar passes by unseen.
    """
    names = calendars_of(schedule)
    known = await calendars.calendars_named(connection, tenant=tenant, names=names) if names else {}
    try:
        return resolve_all(schedule, now_ms=now_ms, seed=seed, calendars=known)
    except ScheduleError as error:
        problem = Problem(f"{pointer}{error.pointer}", error.message, error.hint)
        raise Invalid(error.message, code=error.code, problems=(problem,)) from None

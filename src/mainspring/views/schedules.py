"""Resolve schedules against a tenant's calendars, and preview them."""

from __future__ import annotations

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.schedule.budget import REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.schedule import (
    Resolved,
    ScheduleError,
    ScheduleSpecs,
    calendars_of,
    describe_spec,
    job_seed,
    resolve_all,
    too_costly,
)
from mainspring.store import calendars
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.views.fires import clock_notes, fires_within


async def resolve(
    connection: Connection,
    schedule: ScheduleSpecs,
    *,
    tenant: int,
    now_ms: int,
    seed: str | None,
    pointer: str = "/schedule",
    since_ms: int | None = None,
) -> Resolved:
    """The schedule in canonical form; a problem points to what the user wrote. `since_ms` as in the domain's.

    A writer locks a shard's row first: an edit of a calendar locks all of them, so the calendars read here are current.
    """
    names = calendars_of(schedule)
    known = await calendars.calendars_named(connection, tenant=tenant, names=names) if names else {}
    try:
        return resolve_all(schedule, now_ms=now_ms, seed=seed, calendars=known, since_ms=since_ms)
    except ScheduleError as error:
        raise _refused(error, pointer) from None


def _refused(error: ScheduleError, pointer: str) -> Invalid:
    problem = Problem(f"{pointer}{error.pointer}", error.message, error.hint)
    return Invalid(error.message, code=error.code, problems=(problem,))


async def preview(database: Database, request: wire.PreviewRequest, *, tenant: int) -> wire.Preview:
    """Description and next fires of a schedule, computed by the code that fires it."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        seed = job_seed(tenant, request.job) if request.job else None
        after_ms = now_ms if request.after is None else millis(request.after)
        when = await resolve(connection, request.schedule, tenant=tenant, now_ms=now_ms, seed=seed, since_ms=after_ms)
    try:
        with steps(REQUEST_STEPS):
            return wire.Preview(
                description=describe_spec(request.schedule, seed=seed),
                fires=[*map(instant, fires_of(when, after_ms=after_ms, count=request.count))],
                notes=clock_notes(when.key, after_ms),
            )
    except TooCostly as error:
        raise _refused(too_costly(error, ""), "/schedule") from None


def fires_of(when: Resolved | None, *, after_ms: int, count: int) -> list[int]:
    """The next instants of a resolved schedule."""
    if when is None:
        return []
    if when.key is None:
        return [when.at_ms] if when.at_ms is not None and when.at_ms > after_ms else []
    return fires_within(when.key, when.start_ms, when.end_ms, after_ms=after_ms, count=count)

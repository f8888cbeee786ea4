"""Create and delete blackouts: maintenance windows in which no fire starts, for a tenant, a queue or a job.

Every change locks all shard rows, so a tick runs either before it or with it.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.job import QUEUE
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS
from mainspring.domain.schedule.schedule import ScheduleSpecs, bounded_key, compile_key, members_of
from mainspring.intake.quota import schedule_charge
from mainspring.store import audit, blackouts, shards
from mainspring.store.blackouts import BlackoutRow
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.views import refs
from mainspring.views.blackouts import as_blackout, describe
from mainspring.views.schedules import resolve

MAX_LENGTH_S = 31 * 86_400
CHECKED_WINDOWS = 100
"""A recurring blackout is checked for overlap over this many windows."""
UNSUPPORTED_FIELDS = ("at", "calendar", "roll", "jitter")


async def create(database: Database, request: wire.NewBlackout, *, tenant: int, by: str) -> wire.Blackout:
    """Create a blackout; it applies to every fire that is not yet decided."""
    job_id = await _scope(database, request, tenant=tenant)
    blackout_id = uuid4()
    recurs = request.schedule is not None
    async with (
        schedule_charge(database, adds_schedule=recurs, tenant=tenant, by=by),
        database.transaction() as connection,
    ):
        await shards.bump_blackouts(connection)
        if len(await blackouts.open_blackouts(connection, tenant=tenant)) >= MAX_BLACKOUTS:
            hint = "delete some, use a schedule for windows that recur, or a queue instead of many jobs"
            raise invalid("/", f"there are {MAX_BLACKOUTS} blackouts already", hint=hint, code="too_many_blackouts")
        now_ms = int(await database_now_ms(connection))
        key, lasts_ms = None, None
        if request.schedule is None:
            _check_window(request, now_ms)
        else:
            lasts_ms = _lasts_ms(request)
            key = await _key(connection, request.schedule, lasts_ms, tenant=tenant, now_ms=now_ms)
        row = BlackoutRow(
            blackout_id,
            tenant,
            request.queue,
            job_id,
            _whole(request.start_at),
            _whole(request.end_at, up=True),
            request.schedule,
            key,
            lasts_ms,
            request.reason,
            by,
        )
        await blackouts.insert_blackout(connection, tenant=tenant, row=row)
        (written,) = await blackouts.list_blackouts(connection, tenant=tenant, blackout_id=blackout_id)
        await _record(connection, "blackout.create", written, tenant=tenant, by=by)
        return as_blackout(written, now_ms)


async def delete(database: Database, ref: str, *, tenant: int, by: str) -> None:
    """End a blackout now: fires that wait for its end start, fires that it skipped stay skipped."""
    if not refs.is_id(ref):
        raise NotFound(f"there is no blackout {ref!r}")
    async with database.transaction() as connection:
        await shards.bump_blackouts(connection)
        known = await blackouts.list_blackouts(connection, tenant=tenant, blackout_id=UUID(ref))
        if not await blackouts.delete_blackout(connection, tenant=tenant, blackout_id=UUID(ref), by=by):
            raise NotFound(f"there is no blackout {ref!r}")
        await _record(connection, "blackout.delete", known[0], tenant=tenant, by=by)


async def _record(connection: Connection, action: str, row: BlackoutRow, *, tenant: int, by: str) -> None:
    await audit.record(
        connection,
        action,
        row.blackout_id,
        tenant=tenant,
        by=by,
        name=row.job or row.queue or "everything",
        reason=row.reason,
        window=describe(row),
    )


async def _scope(database: Database, request: wire.NewBlackout, *, tenant: int) -> UUID | None:
    if request.queue is not None and request.job is not None:
        raise invalid("/job", "a blackout is for a queue or for a job, not both", hint="create two blackouts")
    if request.queue is not None and not QUEUE.match(request.queue):
        hint = "lower case letters, digits, '_', '-'"
        raise invalid("/queue", f"{request.queue!r} is not a queue name", hint=hint)
    if (request.start_at is None and request.end_at is None) == (request.schedule is None):
        hint = 'give start_at and end_at, or for example "schedule": {"cron": "0 2 * * SUN"}, "lasts": "2h"'
        raise invalid("/", "a blackout needs start_at and end_at, or a schedule", hint=hint, code="bad_blackout")
    if request.job is None:
        return None
    try:
        return (await refs.job_row(database, request.job, tenant=tenant)).job_id
    except NotFound as error:
        raise invalid("/job", error.message, hint="a name or an id, as in mainspring jobs list") from None


def _check_window(request: wire.NewBlackout, now_ms: int) -> None:
    if request.lasts is not None:
        hint = "use end_at instead"
        raise invalid("/lasts", "lasts is only valid with a schedule", hint=hint, code="bad_blackout")
    if request.start_at is None or request.end_at is None:
        missing = "/start_at" if request.start_at is None else "/end_at"
        raise invalid(missing, "a blackout needs both start_at and end_at", hint="add it", code="bad_blackout")
    if request.end_at <= request.start_at:
        raise invalid("/end_at", "end_at is not after start_at", hint="choose a later end_at", code="bad_window")
    if millis(request.end_at) <= now_ms:
        raise invalid("/end_at", "end_at is in the past", hint="choose a later end_at", code="past_time")


def _whole(at: datetime | None, *, up: bool = False) -> datetime | None:
    """Round outwards to milliseconds, the resolution of fires."""
    return None if at is None else instant(-(-at.timestamp() * 1000 // 1) if up else at.timestamp() * 1000 // 1)


def _lasts_ms(request: wire.NewBlackout) -> int:
    if request.lasts is None:
        raise invalid("/lasts", "lasts is required with a schedule", hint='for example "2h"', code="bad_blackout")
    try:
        lasts_s = parse_duration(request.lasts)
    except ValueError as error:
        raise invalid("/lasts", str(error), hint="for example 2h or PT30M", code="bad_duration") from None
    if not 1 <= lasts_s <= MAX_LENGTH_S:
        hint = "at least 1 second and at most 31 days"
        raise invalid("/lasts", f"{request.lasts} is out of range", hint=hint, code="bad_duration")
    return round(lasts_s * 1000)


async def _key(connection: Connection, schedule: ScheduleSpecs, lasts_ms: int, *, tenant: int, now_ms: int) -> str:
    for number, member in enumerate(members_of(schedule)):
        place = f"/{number}" if isinstance(schedule, list) else ""
        for name in UNSUPPORTED_FIELDS:
            if getattr(member, name) is not None:
                hint = "use start_at and end_at instead" if name == "at" else "remove it"
                message = f"{name} is not supported in a blackout"
                raise invalid(f"/schedule{place}/{name}", message, hint=hint, code="bad_blackout")
    when = await resolve(connection, schedule, tenant=tenant, now_ms=now_ms, seed=None)
    key = bounded_key(when)
    begins = compile_key(key).between(now_ms - lasts_ms, LAST_MS, CHECKED_WINDOWS)
    if any(after - before <= lasts_ms for before, after in pairwise(begins)):
        hint = "make it shorter or less frequent; to suspend a job permanently, pause it"
        raise invalid(
            "/lasts",
            "each window begins before the previous one ends: the blackout would never end",
            hint=hint,
            code="bad_blackout",
        )
    return key

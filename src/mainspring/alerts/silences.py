"""Create, list and delete silences and maintenance windows."""

from __future__ import annotations

from uuid import UUID, uuid4

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.duration import parse_duration, spell_duration
from mainspring.domain.errors import Invalid, NotFound, Problem, invalid
from mainspring.domain.schedule.calendar import blackout_until
from mainspring.domain.schedule.schedule import ScheduleError, ScheduleSpecs, bounded_key, describe_spec, resolve_all
from mainspring.domain.silence import LABELS
from mainspring.store import audit, silences
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.silences import SilenceRow

MAX_DURATION_S = 31 * 86_400


async def create(database: Database, request: wire.NewSilence, *, tenant: int, by: str) -> wire.Silence:
    """Create a silence. Matching alerts are held back, and sent at its end if they still fire."""
    _check_matchers(request.matchers)
    if (request.end_at is None) == (request.schedule is None):
        hint = 'give end_at, or for example "schedule": {"cron": "0 2 * * SUN"}, "lasts": "2h"'
        raise invalid("/", "a silence needs either end_at or schedule", hint=hint, code="bad_silence")
    silence_id = uuid4()
    async with database.transaction() as connection:
        now_ms = int(await database_now_ms(connection))
        key, lasts_ms = None, None
        if request.schedule is None:
            _check_window(request, now_ms)
        else:
            key, lasts_ms = _key(request.schedule, now_ms), _lasts_ms(request)
        row = SilenceRow(
            silence_id,
            tenant,
            dict(request.matchers),
            request.start_at,
            request.end_at,
            request.schedule,
            key,
            lasts_ms,
            request.reason,
            by,
        )
        await silences.insert_silence(connection, tenant=tenant, row=row)
        (written,) = await silences.list_silences(connection, tenant=tenant, silence_id=silence_id)
        await _record(connection, "silence.create", written, tenant=tenant, by=by)
    return _shown(written, now_ms)


async def list_all(database: Database, *, tenant: int) -> wire.Page[wire.Silence]:
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        rows = await silences.list_silences(connection, tenant=tenant)
    return wire.Page(items=[_shown(row, now_ms) for row in rows])


async def delete(database: Database, ref: str, *, tenant: int, by: str) -> None:
    """Delete a silence; what it held back is sent."""
    try:
        silence_id = UUID(ref)
    except ValueError:
        raise NotFound(f"silence {ref!r} does not exist") from None
    async with database.transaction() as connection:
        known = await silences.list_silences(connection, tenant=tenant, silence_id=silence_id)
        if not await silences.delete_silence(connection, tenant=tenant, silence_id=silence_id):
            raise NotFound(f"silence {ref!r} does not exist")
        await _record(connection, "silence.delete", known[0], tenant=tenant, by=by)


async def _record(connection: Connection, action: str, row: SilenceRow, *, tenant: int, by: str) -> None:
    name = " ".join(f"{label}={value}" for label, value in row.matchers.items())
    await audit.record(
        connection, action, row.silence_id, tenant=tenant, by=by, name=name, reason=row.reason, window=_described(row)
    )


def _check_matchers(matchers: dict[str, str]) -> None:
    hint = f'known: {", ".join(LABELS)}; for example {{"rule": "queue_*"}}'
    problems = [Problem(f"/matchers/{n}", f"unknown label {n!r}", hint) for n in matchers if n not in LABELS]
    if not matchers:
        problems = [Problem("/matchers", "at least one matcher is required", 'to match everything, use {"rule": "*"}')]
    if problems:
        raise Invalid(problems[0].message, code="bad_matcher", problems=tuple(problems))


def _check_window(request: wire.NewSilence, now_ms: int) -> None:
    assert request.end_at is not None
    if request.lasts is not None:
        raise invalid("/lasts", "lasts requires a schedule", hint="use end_at instead", code="bad_silence")
    if millis(request.end_at) <= now_ms:
        raise invalid("/end_at", "end_at is in the past", hint="choose a later end_at", code="past_time")
    if request.start_at is not None and request.end_at <= request.start_at:
        raise invalid("/end_at", "end_at is not after start_at", hint="choose a later end_at", code="bad_window")


def _lasts_ms(request: wire.NewSilence) -> int:
    if request.start_at is not None:
        raise invalid("/start_at", "start_at can't be combined with a schedule", hint="remove start_at")
    try:
        lasts_s = parse_duration(request.lasts or 0)
    except ValueError as error:
        raise invalid("/lasts", str(error), hint="for example 2h or PT30M", code="bad_duration") from None
    if not 1 <= lasts_s <= MAX_DURATION_S:
        hint = "for example 2h; at least 1 second and at most 31 days"
        raise invalid("/lasts", "lasts is missing or out of range", hint=hint, code="bad_duration")
    return round(lasts_s * 1000)


def _key(schedule: ScheduleSpecs, now_ms: int) -> str:
    try:
        return bounded_key(resolve_all(schedule, now_ms=now_ms, seed=None, calendars={}))
    except ScheduleError as error:
        problem = Problem(f"/schedule{error.pointer}", error.message, error.hint)
        raise Invalid(error.message, code=error.code, problems=(problem,)) from None


def _shown(row: SilenceRow, now_ms: int) -> wire.Silence:
    assert row.created_at is not None
    until = blackout_until([row.window], now_ms)
    return wire.Silence(
        silence_id=row.silence_id,
        matchers=row.matchers,
        start_at=row.start_at,
        end_at=row.end_at,
        schedule=row.schedule,
        lasts_s=None if row.lasts_ms is None else row.lasts_ms / 1000,
        description=_described(row),
        reason=row.reason,
        holds_until=None if until is None else instant(until),
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _described(row: SilenceRow) -> str:
    if row.schedule is not None and row.lasts_ms is not None:
        return f"{describe_spec(row.schedule)}, for {spell_duration(row.lasts_ms / 1000)}"
    assert row.start_at is not None and row.end_at is not None
    return f"{row.start_at:%Y-%m-%d %H:%M} to {row.end_at:%Y-%m-%d %H:%M} UTC"

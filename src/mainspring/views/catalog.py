"""Reading jobs, executions, logs and workers, as people see them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.errors import Invalid, NotFound, invalid
from mainspring.domain.execution import LIVE, STATES
from mainspring.domain.job import NAME
from mainspring.domain.schedule.blackouts import Blackouts, Scope
from mainspring.domain.schedule.deadline import Judgement
from mainspring.domain.schedule.schedule import compile_key, describe_spec, job_seed, notes, stands_for, zone_of
from mainspring.store import blackouts, deadlines, executions, jobs, logs, sessions
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.jobs import JobRow, LastRow

LAST_SHOWN = 20
NOTED = 3
MAX_PAGE = 500
_AFTER_ALL = UUID(int=(1 << 128) - 1)
_LOG_CHUNKS = 200
_WAITING_SEEN = 40
_TAIL_BYTES = 96_000
_AFTER_OUTPUT = (32_767, 2_147_483_647)
_PLACE = re.compile(r"(\d{1,4})\.(-1|\d{1,9})\Z", re.ASCII)


async def job_row(database: Database, ref: str, *, tenant: int) -> JobRow:
    """A job by name or id."""
    async with database.connection() as connection:
        row = await find_job(connection, ref, tenant=tenant)
    if row is None:
        raise NotFound(f"there is no job {ref!r}")
    return row


async def find_job(connection: Connection, ref: str, *, tenant: int) -> JobRow | None:
    row = None
    if is_id(ref):
        row = await jobs.job_by_id(connection, tenant=tenant, job_id=UUID(ref))
    if row is None and NAME.match(ref):
        row = await jobs.job_by_name(connection, tenant=tenant, name=ref)
    return row


async def job(database: Database, ref: str, *, tenant: int) -> wire.Job:
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        return (await as_jobs(connection, [row], tenant=tenant))[0]


async def list_jobs(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 50, prefix: str | None = None
) -> wire.Page[wire.Job]:
    check_limit(limit)
    if cursor and not NAME.match(cursor):
        raise bad_cursor()
    if prefix and not NAME.match(prefix):
        return wire.Page(items=[])
    async with database.connection() as connection:
        rows = await jobs.list_jobs(connection, tenant=tenant, after=cursor or "", limit=limit + 1, prefix=prefix)
        page = await as_jobs(connection, rows[:limit], tenant=tenant)
    return wire.Page(items=page, next_cursor=page[-1].name if len(rows) > limit else None)


async def fires(
    database: Database, ref: str, *, tenant: int, count: int = 10, after: datetime | None = None
) -> wire.Fires:
    """The next fires of a job as if it were not paused."""
    check_limit(count, "/count")
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        start_ms = int(await database_now_ms(connection)) if after is None else millis(after)
        known = Blackouts(await blackouts.open_blackouts(connection, tenant=tenant))
    spec = row.spec.schedule
    found = await _fires_of(database, row, after_ms=start_ms, count=count)
    return wire.Fires(
        description=describe_spec(spec, seed=job_seed(tenant, row.name)) if spec else "on demand",
        timezone=zone_of(spec),
        fires=found,
        notes=[*(notes(row.schedule_key, start_ms) if row.schedule_key else []), *_blackout_notes(known, row, found)],
    )


def _blackout_notes(known: Blackouts, row: JobRow, fires: list[datetime]) -> list[str]:
    """Which of the fires fall into a blackout; as many as one wants to read."""
    scope = Scope(row.tenant, row.spec.queue_name, row.job_id)
    held = [(at, until) for at in fires if (until := known.until(scope, millis(at))) is not None]
    told = [
        f"{at:%Y-%m-%d %H:%M:%S} UTC falls into a blackout that is over at {instant(until):%Y-%m-%d %H:%M:%S} UTC"
        for at, until in held[:NOTED]
    ]
    return [*told, *([f"so do {len(held) - NOTED} more"] if len(held) > NOTED else [])]


async def _fires_of(database: Database, row: JobRow, *, after_ms: int, count: int) -> list[datetime]:
    if not _one_time(row):
        return [instant(ms) for ms in next_fires(row, after_ms=after_ms, count=count)]
    async with database.connection() as connection:
        last = await jobs.last_executions(connection, tenant=row.tenant, job_ids=[row.job_id], each=LAST_SHOWN)
    return [e.fire_at for e in last[row.job_id] if e.state == "waiting" and millis(e.fire_at) > after_ms][:count]


def _one_time(row: JobRow) -> bool:
    """Whether its one fire is a waiting execution instead of an entry on the wheel."""
    return row.spec.schedule is not None and row.schedule_key is None


def next_fires(row: JobRow, *, after_ms: int, count: int) -> list[int]:
    """Instants after `after_ms` at which the job is due, within its start and end."""
    if row.schedule_key is None:
        return []
    start_ms = None if row.start_at is None else millis(row.start_at)
    end_ms = None if row.end_at is None else millis(row.end_at)
    return fires_within(row.schedule_key, start_ms, end_ms, after_ms=after_ms, count=count)


def fires_within(key: str, start_ms: int | None, end_ms: int | None, *, after_ms: int, count: int) -> list[int]:
    """The next instants of a schedule between its start and its end, both included."""
    schedule, found = compile_key(key), list[int]()
    begin_ms = after_ms if start_ms is None else max(after_ms, start_ms - 1)
    while len(found) < count:
        at = schedule.next_after(found[-1] if found else begin_ms)
        if at is None or at > LAST_MS or (end_ms is not None and at > end_ms):
            break
        found.append(at)
    return found


async def upcoming(database: Database, *, tenant: int, limit: int = 20) -> list[tuple[datetime, UUID, str]]:
    """The next fires over all jobs: when, and which job."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        known = await jobs.tenant_schedules(connection, tenant=tenant, limit=2000)
        ahead = []
        for schedule_id, key in known:
            at = compile_key(key).next_after(now_ms)
            if at is not None:
                ahead.append((at, schedule_id))
        at_of = {schedule_id: at for at, schedule_id in sorted(ahead)[:limit]}
        rows = await jobs.jobs_on_schedules(connection, tenant=tenant, schedule_ids=list(at_of), each=limit)
        once = await executions.next_one_time(connection, tenant=tenant, limit=limit, each=_WAITING_SEEN)
    return sorted([*once, *((instant(at_of[s]), job_id, name) for s, job_id, name in rows)])[:limit]


async def execution_id(database: Database, ref: str, *, tenant: int) -> UUID:
    """An execution's id by itself or by a unique beginning of at least 8 digits."""
    if is_id(ref):
        return UUID(ref)
    digits = ref.replace("-", "").lower()
    if len(digits) < 8 or len(digits) > 32 or not all(c in "0123456789abcdef" for c in digits):
        raise NotFound(f"{ref!r} is not an execution id; give the whole id or at least its first 8 digits")
    async with database.connection() as connection:
        found = await executions.execution_prefix(connection, tenant=tenant, prefix=digits)
    if not found:
        raise NotFound(f"there is no execution {ref!r}")
    if len(found) > 1:
        raise Invalid(f"several executions begin with {ref!r}; give more digits", code="ambiguous_id")
    return found[0]


async def execution(database: Database, ref: str | UUID, *, tenant: int) -> wire.Execution:
    """One execution with its attempts."""
    found_id = ref if isinstance(ref, UUID) else await execution_id(database, ref, tenant=tenant)
    async with database.connection() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=found_id)
        if found is None:
            raise NotFound(f"there is no execution {ref}")
        # A first attempt that runs or simply succeeded has left no row.
        if found.attempt > 1 or (found.attempt == 1 and found.state not in ("running", "succeeded")):
            found.attempts.extend(await executions.list_attempts(connection, tenant=tenant, execution_id=found_id))
    return found


async def list_executions(
    database: Database,
    *,
    tenant: int,
    cursor: str | None = None,
    limit: int = 50,
    job: str | None = None,
    states: Sequence[str] = (),
) -> wire.Page[wire.Execution]:
    check_limit(limit)
    for state in states:
        if state not in STATES:
            raise invalid("/state", f"{state!r} is not a state", hint=f"one of {', '.join(STATES)}")
    before = parse_cursor(cursor)
    job_id = None if job is None else (await job_row(database, job, tenant=tenant)).job_id
    async with database.connection() as connection:
        rows = await executions.list_executions(
            connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id, states=states
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].execution_id) if len(rows) > limit else None)


async def read_logs(database: Database, execution_id: UUID, *, tenant: int, place: str | None = None) -> wire.Logs:
    """Output after a place. `complete` once the execution has ended and everything was read."""
    after = parse_place(place)
    async with database.connection() as connection:
        # State before chunks: output is written before the end, so an ended execution has all of it.
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution_id)
        if found is None:
            raise NotFound(f"there is no execution {execution_id}")
        rows = await logs.read_logs(
            connection, tenant=tenant, execution_id=execution_id, after=after, limit=_LOG_CHUNKS
        )
    chunks = _chunks(rows)
    last = (rows[-1][0], rows[-1][1]) if rows else after
    complete = found.state not in LIVE and len(rows) < _LOG_CHUNKS
    return wire.Logs(chunks=chunks, place=f"{last[0]}.{last[1]}", complete=complete, progress=found.progress)


async def read_logs_before(
    database: Database, execution_id: UUID, *, tenant: int, before: str | None = None
) -> tuple[wire.Logs, bool]:
    """The output before a place, or the end of it; and whether there is more before. Chunks come in order."""
    place = parse_place(before) if before else _AFTER_OUTPUT
    async with database.connection() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution_id)
        if found is None:
            raise NotFound(f"there is no execution {execution_id}")
        rows = await logs.read_logs_before(
            connection, tenant=tenant, execution_id=execution_id, before=place, limit=_LOG_CHUNKS, size=_TAIL_BYTES
        )
        first = (rows[-1][0], rows[-1][1]) if rows else (0, -1)
        more = bool(rows) and bool(
            await logs.read_logs_before(
                connection, tenant=tenant, execution_id=execution_id, before=first, limit=1, size=1
            )
        )
    last = f"{rows[0][0]}.{rows[0][1]}" if rows else "0.-1"
    complete = found.state not in LIVE and not before
    return wire.Logs(chunks=_chunks(rows[::-1]), place=last, complete=complete, progress=found.progress), more


def _chunks(rows: Sequence[tuple[int, int, wire.Stream, bytes]]) -> list[wire.LogChunk]:
    return [
        wire.LogChunk(attempt=attempt, seq=seq, stream=stream, text=data.decode("utf-8", "replace"))
        for attempt, seq, stream, data in rows
    ]


async def list_versions(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.Version]:
    """Every version a job has had, newest first."""
    check_limit(limit)
    row = await job_row(database, ref, tenant=tenant)
    if cursor is not None and not cursor.isdigit():
        raise bad_cursor()
    before = int(cursor) if cursor else row.version + 1
    async with database.connection() as connection:
        rows = await jobs.list_versions(connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1)
    page = [
        wire.Version(version=v, spec=spec, created_at=at, created_by=by, tzdata=zones)
        for v, spec, at, by, zones in rows[:limit]
    ]
    return wire.Page(items=page, next_cursor=str(page[-1].version) if len(rows) > limit else None)


async def ledger(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.LedgerEntry]:
    """What became of each due instant of a job, newest first."""
    check_limit(limit)
    row = await job_row(database, ref, tenant=tenant)
    before = parse_cursor(cursor)
    async with database.connection() as connection:
        entries = await executions.list_fires(
            connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1
        )
    page = [_noted(row, version, entry) for version, entry in entries[:limit]]
    return wire.Page(items=page, next_cursor=str(page[-1].execution_id) if len(entries) > limit else None)


def _noted(row: JobRow, version: int, entry: wire.LedgerEntry) -> wire.LedgerEntry:
    """What the clocks did is told by the schedule of today, so only for what today's version fired."""
    if row.schedule_key is None or version != row.version:
        return entry
    return msgspec.structs.replace(entry, note=stands_for(compile_key(row.schedule_key), millis(entry.fire_at)))


async def list_workers(database: Database, *, tenant: int) -> list[wire.Worker]:
    async with database.connection() as connection:
        return await sessions.list_workers(connection, tenant=tenant)


def is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def bad_cursor() -> Invalid:
    return invalid("/cursor", "this is not a cursor of ours", hint="pass next_cursor as it was given")


def parse_cursor(cursor: str | None) -> UUID:
    if cursor is not None and not is_id(cursor):
        raise bad_cursor()
    return UUID(cursor) if cursor else _AFTER_ALL


def parse_place(place: str | None) -> tuple[int, int]:
    if not place:
        return (0, -1)
    if (found := _PLACE.match(place)) is not None:
        return (int(found[1]), int(found[2]))
    raise invalid("/place", "this is not a place of ours", hint="pass `place` as it was given")


def check_limit(limit: int, pointer: str = "/limit") -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(pointer, f"{limit} is out of range", hint=f"between 1 and {MAX_PAGE}")


async def as_jobs(connection: Connection, rows: Sequence[JobRow], *, tenant: int) -> list[wire.Job]:
    """Jobs as people see them: with their next fire and last executions."""
    if not rows:
        return []
    now_ms = int(await database_now_ms(connection))
    last = await jobs.last_executions(connection, tenant=tenant, job_ids=[row.job_id for row in rows], each=LAST_SHOWN)
    judged = await deadlines.judge(connection, rows, tenant=tenant, now_ms=now_ms)
    return [_as_job(row, last[row.job_id], judged[row.job_id], now_ms) for row in rows]


def _as_job(row: JobRow, last: list[LastRow], judged: list[Judgement], now_ms: int) -> wire.Job:
    following = _next_fire(row, last, now_ms)
    state: wire.JobState = "active"
    if row.deleted_at is not None:
        state = "deleted"
    elif row.spec.schedule is not None and following is None and not any(e.state in LIVE for e in last):
        state = "finished"
    elif row.paused_at is not None:
        state = "paused"
    return wire.Job(
        job_id=row.job_id,
        name=row.name,
        version=row.version,
        state=state,
        spec=row.spec,
        schedule_description=_described(row),
        next_fire_at=following if state == "active" else None,
        last=[
            wire.LastExecution(
                execution_id=e.execution_id,
                state=e.state,  # type: ignore[arg-type]
                fire_at=e.fire_at,
                finished_at=e.finished_at,
                duration_ms=e.duration_ms,
            )
            for e in last
            if e.state != "waiting" or e.fire_at <= instant(now_ms)
        ],
        pause_reason=row.pause_reason,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        paused_at=row.paused_at,
        paused_until=row.paused_until,
        deadlines=[
            wire.Deadline(kind=j.kind, state=j.state, at=None if j.at_ms is None else instant(j.at_ms)) for j in judged
        ],
    )


def _described(row: JobRow) -> str | None:
    schedule = row.spec.schedule
    return None if schedule is None else describe_spec(schedule, seed=job_seed(row.tenant, row.name))


def _next_fire(row: JobRow, last: list[LastRow], now_ms: int) -> datetime | None:
    if _one_time(row):
        return next((e.fire_at for e in last if e.state == "waiting"), None)
    ahead = next_fires(row, after_ms=now_ms, count=1)
    return instant(ahead[0]) if ahead else None

"""Fires of jobs: the next ones, and the ledger of past ones."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.flexible import read_window
from mainspring.domain.schedule.blackouts import Blackouts, Scope
from mainspring.domain.schedule.budget import FIRE_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.schedule import compile_key, describe_spec, job_seed, notes, stands_for, zone_of
from mainspring.store import blackouts, executions, jobs, planned_starts
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views.refs import check_limit, job_row, parse_cursor, past_job

BLACKOUT_NOTES = 3
MOST_SCHEDULES = 2000
ONE_TIME_PER_JOB = 40
BLACKOUTS_PASSED = 20
"""Blackouts that the search for a next fire passes: a daily window hides a daily job for good."""


async def of_job(
    database: Database, ref: str, *, tenant: int, count: int = 10, after: datetime | None = None
) -> wire.Fires:
    """The next fires of a job, ignoring a pause."""
    check_limit(count, "/count")
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        start_ms = int(await database_now_ms(connection)) if after is None else millis(after)
        known = Blackouts(await blackouts.open_blackouts(connection, tenant=tenant))
    spec = row.spec.schedule
    with steps(REQUEST_STEPS):
        found = await _fires_of(database, row, after_ms=start_ms, count=count)
        return wire.Fires(
            description=describe_spec(spec, seed=job_seed(tenant, row.name)) if spec else "on demand",
            timezone=zone_of(spec),
            fires=found,
            notes=[*clock_notes(row.schedule_key, start_ms), *_blackout_notes(known, row, found)],
            starts=await _planned(database, row, found),
        )


async def _planned(database: Database, row: JobRow, fires: list[datetime]) -> list[wire.PlannedStart]:
    """The starts of a flexible job's fires. The plan is of all tenants, so the process reads it."""
    if row.flexible is None:
        return []
    async with database.root.connection() as connection:
        planned = await planned_starts.of_job(
            connection, tenant=row.tenant, job_id=row.job_id, fires_ms=[millis(at) for at in fires]
        )
    window, found = read_window(row.flexible), []
    for at in fires:
        start_ms, end_ms = planned.get(millis(at), (None, window.end_ms(millis(at))))
        start_at = None if start_ms is None else instant(start_ms)
        found.append(wire.PlannedStart(fire_at=at, start_at=start_at, window_end_at=instant(end_ms)))
    return found


def clock_notes(key: str | None, after_ms: int) -> list[str]:
    """What clock changes do to the coming fires; nothing if that is too costly to say."""
    try:
        return [] if key is None else notes(key, after_ms)
    except TooCostly:
        return []


def _blackout_notes(known: Blackouts, row: JobRow, fires: list[datetime]) -> list[str]:
    """Name the first fires that fall into a blackout, and count the others."""
    scope = Scope(row.tenant, row.spec.queue_name, row.job_id)
    held = [(at, until) for at in fires if (until := known.until(scope, millis(at))) is not None]
    named = [
        f"{at:%Y-%m-%d %H:%M:%S} UTC falls into a blackout that ends at {instant(until):%Y-%m-%d %H:%M:%S} UTC"
        for at, until in held[:BLACKOUT_NOTES]
    ]
    rest = len(held) - BLACKOUT_NOTES
    return [*named, *([f"so do {rest} more"] if rest > 0 else [])]


async def _fires_of(database: Database, row: JobRow, *, after_ms: int, count: int) -> list[datetime]:
    if not fires_once(row):
        return [instant(ms) for ms in next_fires(row, after_ms=after_ms, count=count)]
    async with database.connection() as connection:
        now = instant(await database_now_ms(connection))
        last = await jobs.last_executions(connection, tenant=row.tenant, job_ids=[row.job_id], now=now)
    return [e.fire_at for e in last[row.job_id] if e.state == "waiting" and millis(e.fire_at) > after_ms][:count]


def fires_once(row: JobRow) -> bool:
    """Whether the job has a one-time schedule: a waiting execution instead of an entry on the wheel."""
    return row.spec.schedule is not None and row.schedule_key is None


def next_fires(row: JobRow, *, after_ms: int, count: int) -> list[int]:
    """Instants after `after_ms` at which the job is due, within its start and end."""
    if row.schedule_key is None:
        return []
    start_ms = None if row.start_at is None else millis(row.start_at)
    end_ms = None if row.end_at is None else millis(row.end_at)
    return fires_within(row.schedule_key, start_ms, end_ms, after_ms=after_ms, count=count)


def fires_within(key: str, start_ms: int | None, end_ms: int | None, *, after_ms: int, count: int) -> list[int]:
    """The next instants of a schedule between its start and its end, both included. May raise `TooCostly`."""
    schedule = compile_key(key)
    begin_ms = after_ms if start_ms is None else max(after_ms, start_ms - 1)
    until_ms = LAST_MS if end_ms is None else min(end_ms, LAST_MS)
    if not schedule.walks:
        return schedule.between(begin_ms, until_ms, count)
    with steps(REQUEST_STEPS):
        return schedule.between(begin_ms, until_ms, count)


def next_fire(row: JobRow, *, after_ms: int) -> int | None:
    """The next instant of one of several jobs that are shown together: each may take a small part of the budget."""
    if row.schedule_key is None or not compile_key(row.schedule_key).walks:
        found = next_fires(row, after_ms=after_ms, count=1)
    else:
        with steps(FIRE_STEPS):
            found = next_fires(row, after_ms=after_ms, count=1)
    return found[0] if found else None


async def upcoming(database: Database, *, tenant: int, limit: int = 20) -> list[tuple[datetime, UUID, str]]:
    """The next fires over all jobs: instant, job id, job name. Fires that a blackout holds back are left out."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        closed = Blackouts(await blackouts.open_blackouts(connection, tenant=tenant))
        known = await jobs.tenant_schedules(connection, tenant=tenant, limit=MOST_SCHEDULES)
        ahead = []
        with steps(REQUEST_STEPS):
            for schedule_id, key in known:
                with suppress(TooCostly):
                    at = _next_outside(key, closed, Scope(tenant), now_ms)
                    if at is not None:
                        ahead.append((at, schedule_id, key))
        chosen = {schedule_id: (at, key) for at, schedule_id, key in sorted(ahead)[:limit]}
        rows = await jobs.jobs_on_schedules(connection, tenant=tenant, schedule_ids=list(chosen), each=limit)
        once = await executions.next_one_time(connection, tenant=tenant, limit=limit, each=ONE_TIME_PER_JOB)
    found = [
        (at, job_id, name)
        for at, job_id, name, queue in once
        if closed.until(Scope(tenant, queue, job_id), millis(at)) is None
    ]
    with steps(REQUEST_STEPS):
        for schedule_id, job_id, name, queue in rows:
            first, key = chosen[schedule_id]
            with suppress(TooCostly):
                if (at_ms := _next_outside(key, closed, Scope(tenant, queue, job_id), first - 1)) is not None:
                    found.append((instant(at_ms), job_id, name))
    return sorted(found)[:limit]


def _next_outside(key: str, closed: Blackouts, scope: Scope, after_ms: int) -> int | None:
    """The next fire after an instant that no blackout of these jobs holds back; None if the next ones all are."""
    schedule = compile_key(key)
    for _ in range(BLACKOUTS_PASSED):
        at = schedule.next_after(after_ms)
        if at is None or (until := closed.until(scope, at)) is None:
            return at
        after_ms = until - 1
    return None


async def ledger(
    database: Database, ref: str, *, tenant: int, cursor: str | None = None, limit: int = 50
) -> wire.Page[wire.LedgerEntry]:
    """The outcome of each due instant of a job, and of each start by a trigger, newest first."""
    check_limit(limit)
    row = await past_job(database, ref, tenant=tenant)
    before = parse_cursor(cursor)
    async with database.connection() as connection:
        entries = await executions.list_fires(
            connection, tenant=tenant, job_id=row.job_id, before=before, limit=limit + 1
        )
    with steps(REQUEST_STEPS):
        page = [_with_clock_note(row, version, entry) for version, entry in entries[:limit]]
    return wire.Page(items=page, next_cursor=str(page[-1].execution_id) if len(entries) > limit else None)


def _with_clock_note(row: JobRow, version: int, entry: wire.LedgerEntry) -> wire.LedgerEntry:
    """Note what a clock change did to this fire. Computed from today's schedule, so only for its fires."""
    if row.schedule_key is None or version != row.version or entry.started_by is not None:
        return entry
    try:
        with steps(FIRE_STEPS):
            note = stands_for(compile_key(row.schedule_key), millis(entry.fire_at))
    except TooCostly:
        return entry
    return msgspec.structs.replace(entry, note=note)

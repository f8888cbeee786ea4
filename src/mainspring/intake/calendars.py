"""Write and delete calendars: named days that many schedules follow.

A schedule's key contains the content of its calendars, so an edit moves the jobs that follow a calendar to other
schedules. It locks all shard rows first: a job that is saved at the same time is either moved with the others, or
saved afterwards with the new content.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.domain.job import NAME
from mainspring.domain.schedule.budget import FIRE_STEPS, TooCostly, steps
from mainspring.domain.schedule.calendar import Calendar, CalendarError, check_calendar
from mainspring.domain.schedule.limits import MAX_CALENDAR_RULE, check_key
from mainspring.domain.schedule.schedule import ScheduleError, compile_key, with_calendar
from mainspring.store import audit, calendars, schedules, shards
from mainspring.store.calendars import Follower, calendar_of
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.withdrawn_fires import record_range, undecided_range
from mainspring.views import fires as fire_views

NAMED_JOBS = 5
PREVIEWED_JOBS = 5
PREVIEWED_FIRES = 3


async def put(
    database: Database, name: str, days: wire.CalendarDays, *, tenant: int, by: str, dry_run: bool = False
) -> wire.CalendarChange:
    """Write a new version of a calendar and move every job that follows it; a dry run only returns the effects."""
    check_days(name, days)
    calendar = calendar_of(name, days)
    async with database.transaction() as connection:
        if dry_run:
            watermarks: dict[int, int] = {}
        else:
            watermarks = await shards.bump_shards(connection)
        followers = await calendars.lock_followers(connection, tenant=tenant, name=name)
        now_ms = int(await database_now_ms(connection))
        known_keys = await schedules.schedule_keys(connection, schedule_ids={job.schedule_id for job in followers})
        keys = {}
        for schedule_id, old in known_keys.items():
            if (new := _with_days(old, calendar, now_ms)) != old:
                keys[schedule_id] = (old, new)
            await asyncio.sleep(0)  # many schedules may follow it: let other requests run in between
        if not dry_run:
            known = await calendars.list_calendars(connection, tenant=tenant, name=name)
            if not known or known[0].days != days:
                await calendars.write_calendar(connection, tenant=tenant, name=name, days=days, created_by=by)
                before = msgspec.to_builtins(known[0].days) if known else {}
                await audit.record(
                    connection,
                    "calendar.write",
                    name,
                    tenant=tenant,
                    by=by,
                    name=name,
                    fields=sorted(changes(before, msgspec.to_builtins(days))),
                    jobs=len(followers),
                )
            await _move(connection, name, followers, keys, watermarks, tenant=tenant, now_ms=now_ms)
    return _change(followers, keys, now_ms)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    """Delete a calendar; refused while jobs follow it."""
    async with database.transaction() as connection:
        await shards.bump_shards(connection)
        if await calendars.delete_calendar(connection, tenant=tenant, name=name):
            await audit.record(connection, "calendar.delete", name, tenant=tenant, by=by, name=name)
            return
        names, jobs = await calendars.calendar_followers(connection, tenant=tenant, name=name, limit=NAMED_JOBS)
        if not jobs:
            raise NotFound(f"there is no calendar {name!r}")
        more = f" and {jobs - len(names):,} more" if jobs > len(names) else ""
        raise Conflict(
            f"the calendar {name!r} is in use by {', '.join(names)}{more}",
            code="in_use",
            problems=(Problem("/name", "jobs follow it", "remove it from their schedules first"),),
        )


def check_days(name: str, days: wire.CalendarDays) -> None:
    """Refuse an invalid name, an invalid rule, and a calendar that would stop every job."""
    if not NAME.match(name):
        raise invalid("/name", f"{name!r} is not a calendar name", hint="letters, digits, '.', '_', '-'; at most 128")
    for number, rule in enumerate(days.rules):
        if len(rule) > MAX_CALENDAR_RULE:
            message = f"{len(rule):,} characters, at most {MAX_CALENDAR_RULE} are allowed"
            raise invalid(f"/rules/{number}", message, hint="write several rules", code="bad_calendar")
        try:
            check_calendar(calendar_of(name, wire.CalendarDays(rules=[rule])))
        except CalendarError as error:
            problem = Problem(f"/rules/{number}", str(error), error.hint)
            raise Invalid(str(error), code="bad_calendar", problems=(problem,)) from None
    if days.mode == "include" and not days.dates and not days.rules:
        hint = "give dates, such as 2026-12-25, or rules, such as * * MON-FRI"
        raise invalid(
            "/dates",
            "a calendar with mode include needs dates or rules: without, no job fires",
            hint=hint,
            code="bad_calendar",
        )


async def _move(
    connection: Connection,
    name: str,
    followers: list[Follower],
    keys: dict[int, tuple[str, str]],
    watermarks: dict[int, int],
    *,
    tenant: int,
    now_ms: int,
) -> None:
    """Move followers to new schedules from now on; undecided fires of the old ones are recorded, as in a job edit."""
    if not keys:
        return
    moved = {old_id: await schedules.intern_schedule(connection, key=new) for old_id, (_, new) in keys.items()}
    # Shards that ticked together share a watermark, and most schedules have no fire since.
    behind = {(job.schedule_id, watermarks[job.shard]) for job in followers if job.schedule_id in moved}
    behind = {(schedule, mark) for schedule, mark in behind if _fires_between(keys[schedule][0], mark, now_ms)}
    for job in followers:
        asked = job.paused_at is not None or (job.schedule_id, watermarks[job.shard]) in behind
        if job.schedule_id not in moved or not asked:
            continue
        within = undecided_range(
            active_from=job.active_from,
            paused_at=job.paused_at,
            start_at=job.start_at,
            end_at=job.end_at,
            watermark_ms=watermarks[job.shard],
            upto=instant(now_ms),
        )
        if within is not None:
            await record_range(
                connection,
                keys[job.schedule_id][0],
                within,
                tenant=tenant,
                job_id=job.job_id,
                version=job.version,
                reason="rescheduled" if job.paused_at is None else "paused",
            )
    await calendars.move_followers(connection, tenant=tenant, name=name, moved=moved, active_from=instant(now_ms))


def _with_days(key: str, calendar: Calendar, now_ms: int) -> str:
    try:
        return check_key(with_calendar(key, calendar, now_ms))
    except ScheduleError as error:
        raise invalid("/dates", f"a job that follows it: {error.message}", hint=error.hint, code=error.code) from None


def _fires_between(key: str, after_ms: int, upto_ms: int) -> bool:
    try:
        following = compile_key(key).next_after(after_ms)
    except TooCostly:
        return False
    return following is not None and following <= upto_ms


def _change(followers: list[Follower], keys: dict[int, tuple[str, str]], now_ms: int) -> wire.CalendarChange:
    touched = [job for job in followers if job.schedule_id in keys]
    return wire.CalendarChange(
        jobs=len(touched),
        changed=[
            wire.JobFires(
                job=job.name,
                fires_before=_fires(keys[job.schedule_id][0], job, now_ms),
                fires_after=_fires(keys[job.schedule_id][1], job, now_ms),
            )
            for job in sorted(touched, key=lambda job: job.name)[:PREVIEWED_JOBS]
        ],
    )


def _fires(key: str, job: Follower, now_ms: int) -> list[datetime]:
    start_ms = None if job.start_at is None else millis(job.start_at)
    end_ms = None if job.end_at is None else millis(job.end_at)
    try:
        with steps(FIRE_STEPS):
            found = fire_views.fires_within(key, start_ms, end_ms, after_ms=now_ms, count=PREVIEWED_FIRES)
    except TooCostly:
        return []
    return [*map(instant, found)]

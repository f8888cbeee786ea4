"""Why a job does not run: a list of checks in order of importance, each with its evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from mainspring.clock import instant, millis
from mainspring.domain.job import WorkflowTask
from mainspring.domain.limit import resolve_key
from mainspring.domain.params import defaults
from mainspring.domain.schedule.blackouts import Blackouts, Scope
from mainspring.domain.schedule.budget import TooCostly
from mainspring.store import blackouts, executions, holds
from mainspring.store import why as pending
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.views import dependencies, queues, refs, triggers, why_execution
from mainspring.views import fires as fire_views

MAX_LIVE = 10
_SKIPPED = {
    "misfire": "it was missed, and the misfire policy skips it",
    "overlap": "the previous execution had not ended",
    "paused": "the job was paused",
    "rescheduled": "the schedule was changed before it was decided",
    "blackout": "a blackout was active",
    "start_by": "it could not start in time",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `stops` prevents the job from running, `note` is relevant but does not. With optional evidence."""

    name: str
    verdict: Literal["ok", "stops", "note"]
    words: str
    until: datetime | None = None
    holders: list[UUID] = field(default_factory=list)


async def why_not(database: Database, ref: str, *, tenant: int) -> list[Check]:
    """All checks that apply to a job."""
    row = await refs.job_row(database, ref, tenant=tenant)
    if row.deleted_at is not None:
        return [Check("Deleted", "stops", f"it was deleted {row.deleted_at:%Y-%m-%d %H:%M} UTC")]
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        hold = await holds.open_hold(connection)
        closed = Blackouts(await blackouts.open_blackouts(connection, tenant=tenant))
    ahead, schedule = list[int](), Check("Schedule", "stops", "its next fire takes too many steps to find: change it")
    with suppress(TooCostly):
        ahead = fire_views.next_fires(row, after_ms=now_ms, count=1)
        schedule = _schedule(row, ahead, now_ms)
    held = [] if hold is None else [Check("Held", "stops", str(hold))]
    found = [*held, _paused(row), schedule, *_calendar(row), _blackout(row, closed, ahead, now_ms)]
    found += await _needs(database, row)
    found += [Check("Trigger", "note", text) for text in await triggers.waits_of(database, row.name, tenant=row.tenant)]
    found += await _alive(database, row)
    if not isinstance(row.spec.task, WorkflowTask):
        found += [check async for check in _capacity(database, row)]
    return [*found, *await _missed(database, row)]


def _paused(row: JobRow) -> Check:
    if row.paused_at is None:
        return Check("Paused", "ok", "it is not paused")
    words = f"paused since {row.paused_at:%Y-%m-%d %H:%M} UTC" + (f": {row.pause_reason}" if row.pause_reason else "")
    return Check("Paused", "stops", words, row.paused_until)


def _schedule(row: JobRow, ahead: list[int], now_ms: int) -> Check:
    if row.spec.schedule is None:
        return Check("Schedule", "note", "it has none: it runs when triggered, or when the jobs it needs succeed")
    if row.start_at is not None and millis(row.start_at) > now_ms:
        return Check("Schedule", "stops", "it has not started", row.start_at)
    if ahead:
        return Check("Schedule", "ok", "its next fire", instant(ahead[0]))
    if row.schedule_key is None:
        return Check("Schedule", "note", "it fires once; see below whether that is still due")
    over = f" on {row.end_at:%Y-%m-%d %H:%M} UTC" if row.end_at is not None else ""
    return Check("Schedule", "stops", f"it has ended{over}: no more fires")


def _calendar(row: JobRow) -> list[Check]:
    names = ", ".join(row.calendars or ())
    return [Check("Calendar", "note", f"it does not fire on the closed days of {names}")] if names else []


def _blackout(row: JobRow, closed: Blackouts, ahead: list[int], now_ms: int) -> Check:
    scope = Scope(row.tenant, row.spec.queue_name, row.job_id)
    if (until := closed.until(scope, now_ms)) is not None:
        return Check("Blackout", "stops", "one is active", instant(until))
    if ahead and (until := closed.until(scope, ahead[0])) is not None:
        return Check("Blackout", "stops", "the next fire falls into one, which ends", instant(until))
    return Check("Blackout", "ok", "none is active now or at the next fire")


async def _needs(database: Database, row: JobRow) -> list[Check]:
    needs = (await dependencies.dependencies_of(database, str(row.job_id), tenant=row.tenant)).needs
    if not needs:
        return []
    missing = [f"{need.job} ({need.state})" for need in needs if need.state != "satisfied"]
    if not missing:
        return [Check("Dependencies", "ok", f"all {len(needs)} jobs it needs have succeeded")]
    return [Check("Dependencies", "stops", f"it waits for {', '.join(missing)}")]


async def _alive(database: Database, row: JobRow) -> list[Check]:
    """Live executions: the effect of the overlap policy, and why the first pending one waits."""
    async with database.connection() as connection:
        live = await pending.pending_of_job(connection, tenant=row.tenant, job_id=row.job_id, limit=MAX_LIVE)
        now_ms = int(await database_now_ms(connection))
        seen = await executions.executions_by_id(
            connection, tenant=row.tenant, execution_ids=[execution_id for execution_id, _ in live]
        )
    due = [e for e in seen if millis(e.due_at) <= now_ms]
    policy = row.spec.overlap_policy
    if not due:
        found = [Check("Overlap", "ok", f"it has no live execution (policy {policy})")]
    else:
        holders = [e.execution_id for e in due]
        verdict: Literal["stops", "note"] = "note" if policy in ("allow", "cancel_running") else "stops"
        found = [
            Check("Overlap", verdict, f"it has {len(due)} live executions, and the policy is {policy}", None, holders)
        ]
    for e in due:
        if e.state != "running":
            why = await why_execution.execution(database, e.execution_id, tenant=row.tenant)
            found += [
                Check("Waiting now", "stops", reason.message, reason.until, [e.execution_id]) for reason in why.reasons
            ]
            break
    return found


async def _capacity(database: Database, row: JobRow) -> AsyncIterator[Check]:
    seen = await queues.overview(database, tenant=row.tenant)
    name = row.spec.queue_name
    queue = next((queue for queue in seen.items if queue.name == name), None)
    if queue is not None and queue.settings.paused:
        yield Check("Queue", "stops", f"the queue {name} is paused")
    elif queue is not None and queue.settings.cap is not None and queue.running >= queue.settings.cap:
        yield Check("Queue", "stops", f"the queue {name} is at its cap: {queue.running} of {queue.settings.cap} run")
    elif queue is not None:
        yield Check("Queue", "ok", f"in {name}, {queue.depth:,} wait and {queue.running:,} run")
    keys = {"concurrency": row.spec.concurrency, "rate": row.spec.rate}
    given = defaults(row.spec.params)
    wanted = {(k, resolve_key(v.key, job=row.name, params=given)) for k, v in keys.items() if v is not None}
    for limit in seen.limits:
        if (limit.kind, limit.key) not in wanted:
            continue
        holders = [holder.execution_id for holder in limit.holders]
        full = limit.kind == "concurrency" and len(holders) >= limit.limit
        words = f"the key {limit.key!r}: {len(holders)} of {limit.limit}" + (
            " run" if limit.kind == "concurrency" else f" starts in {limit.per_s:g} s"
        )
        yield Check("Limit", "stops" if full else "ok", words, limit.next_at, holders[:MAX_LIVE] if full else [])
    lacking = await why_execution.unfit(database, row.spec, tenant=row.tenant)
    yield Check("Worker", "stops", lacking[0]) if lacking else Check("Worker", "ok", "a matching worker is present")


async def _missed(database: Database, row: JobRow) -> list[Check]:
    """The latest due fire and its state."""
    page = await fire_views.ledger(database, str(row.job_id), tenant=row.tenant, limit=5)
    fires = [entry for entry in page.items if entry.started_by is None]
    latest = next((entry for entry in fires if entry.state not in ("waiting", "blocked", "queued")), None)
    misfire = row.spec.misfire
    policy = f"misfire policy {misfire.policy}, within {misfire.window}"
    if latest is None:
        return []
    if latest.state != "skipped":
        return [Check("Latest fire", "ok", f"{latest.fire_at:%Y-%m-%d %H:%M:%S} UTC {latest.state}")]
    reason = _SKIPPED.get(latest.reason or "", latest.reason or "")
    words = f"{latest.fire_at:%Y-%m-%d %H:%M:%S} UTC was skipped: {reason} ({policy})"
    return [Check("Latest fire", "note", words, None, [latest.execution_id])]

"""Why an execution is not running: every reason, in the order in which they are checked, with the holders."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.flexible import read_window
from mainspring.domain.job import JobSpec
from mainspring.domain.placement.demand import Demand, lacks
from mainspring.domain.placement.isolation import can_reach, demand_with
from mainspring.domain.placement.line import demand_of
from mainspring.domain.placement.reservation import lay_out
from mainspring.domain.queue import DEFAULTS, QueueSettings
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS, Blackouts, Scope
from mainspring.domain.schedule.budget import TooCostly
from mainspring.domain.schedule.calendar import blackout_until
from mainspring.store import blackouts, evictions, holds, jobs, lines, needs, queues, reservations, why
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.store.why import LiveWorker, PendingRow
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import refs, triggers

MAX_AHEAD = 10_000
"""Executions ahead in the line are counted up to here."""
MAX_HOLDERS = 10


async def execution(database: Database, ref: str | UUID, *, tenant: int) -> wire.Why:
    found = await execution_views.get(database, ref, tenant=tenant)
    async with database.connection() as connection:
        row = await why.pending_execution(connection, tenant=tenant, execution_id=found.execution_id)
        reasons = [_ended(found)] if row is None else await _reasons(connection, row, tenant)
        if row is not None and (hold := await holds.open_hold(connection)) is not None:
            reasons = [wire.Reason(code="held", message=str(hold)), *reasons]
    return wire.Why(
        execution_id=found.execution_id,
        job=found.job,
        state=found.state,
        reasons=reasons,
        started_by=found.started_by,
    )


async def job(database: Database, ref: str, *, tenant: int) -> wire.Why:
    """Why the job's next execution is not running; without one, why there is none."""
    row = await refs.past_job(database, ref, tenant=tenant)
    async with database.connection() as connection:
        live = await why.pending_of_job(connection, tenant=tenant, job_id=row.job_id, limit=100)
        now_ms = int(await database_now_ms(connection))
        hold = await holds.open_hold(connection)
    waiting = next((e for e, state in live if state != "running"), live[0][0] if live else None)
    reasons = []
    if hold is not None and waiting is None:
        reasons.append(wire.Reason(code="held", message=str(hold)))
    if row.deleted_at is not None:
        reasons.append(wire.Reason(code="job_deleted", message="the job is deleted"))
    elif row.paused_at is not None:
        words = f": {row.pause_reason}" if row.pause_reason else ""
        reasons.append(wire.Reason(code="job_paused", message=f"the job is paused{words}"))
    elif row.spec.schedule is not None and (held := await _blackout(database, row, now_ms)) is not None:
        reasons.append(held)
    if waiting is not None:
        found = await execution(database, waiting, tenant=tenant)
        return msgspec.structs.replace(found, job=row.name, reasons=[*reasons, *found.reasons])
    try:
        ahead = fire_views.next_fires(row, after_ms=now_ms, count=1)
    except TooCostly:
        ahead = []
        words = "its next fire takes too many steps to find: change its schedule"
        reasons.append(wire.Reason(code="schedule_too_costly", message=words))
    if not reasons and ahead:
        until = instant(ahead[0])
        reasons.append(wire.Reason(code="not_due", message="its next fire is not due yet", until=until))
    elif not reasons:
        nothing = "it has no schedule; trigger it" if row.spec.schedule is None else "its schedule has ended"
        async with database.connection() as connection:
            unmet = await _unmet(connection, row.job_id, tenant) if row.needs else ""
        words = f"it is executed when these have succeeded: {unmet}"
        waits = await triggers.waits_of(database, row.name, tenant=tenant) if not unmet else []
        reasons += [wire.Reason(code="trigger", message=text) for text in waits]
        if not waits:
            reasons.append(wire.Reason(code="needs" if unmet else "no_fire", message=words if unmet else nothing))
    return wire.Why(execution_id=None, job=row.name, state=None, reasons=reasons)


async def _blackout(database: Database, row: JobRow, now_ms: int) -> wire.Reason | None:
    """The blackout that holds the fires of a job back now; without one, the blackout that its next fire falls into."""
    async with database.connection() as connection:
        closed = Blackouts(await blackouts.open_blackouts(connection, tenant=row.tenant))
        windows = await blackouts.active_blackouts(connection, tenant=row.tenant, limit=MAX_BLACKOUTS)
    scope = Scope(row.tenant, row.spec.queue_name, row.job_id)
    if (until := closed.until(scope, now_ms)) is not None:
        named = [w for w in windows if Scope(w.tenant, w.queue, w.job_id).covers(scope)]
        over = next((w for w in named if blackout_until([w.window], now_ms) is not None), None)
        why = f": {over.reason}" if over is not None and over.reason else ""
        words = f"a blackout holds back its fires{why}"
        return wire.Reason(code="blackout", message=words, until=instant(until))
    with suppress(TooCostly):
        ahead = fire_views.next_fires(row, after_ms=now_ms, count=1)
        if ahead and (until := closed.until(scope, ahead[0])) is not None:
            words = "its next fire falls into a blackout"
            return wire.Reason(code="blackout", message=words, until=instant(until))
    return None


async def unfit(database: Database, spec: JobSpec, *, tenant: int) -> list[str]:
    """A warning if no present worker could run the job. No error: such a worker may start later."""
    async with database.connection() as connection:
        servers = await why.live_sessions(connection, tenant=tenant)
        minimum = await queues.min_isolation(connection, tenant=tenant, queue=spec.queue_name)
    reason = _no_worker(demand_with(demand_of(spec), minimum), spec.queue_name, servers)
    return [] if reason is None else [reason.message]


def _ended(found: wire.Execution) -> wire.Reason:
    words = found.reason or found.error
    return wire.Reason(code="ended", message=f"it has ended: {found.state}" + (f" ({words})" if words else ""))


async def _reasons(connection: Connection, row: PendingRow, tenant: int) -> list[wire.Reason]:
    match row.state:
        case "running":
            where = f"it runs on {row.worker}" if row.worker is not None else "its steps are executed"
            return [
                wire.Reason(code="running", message=f"{where}, attempt {row.attempt}"),
                *await _room(connection, row, tenant),
            ]
        case "waiting":
            return [await _needs(connection, row, tenant) if row.needs_by_at is not None else _waiting(row)]
        case "blocked":
            return [await _blocked(connection, row, tenant)]
        case _:
            return await _queued(connection, row, tenant)


async def _needs(connection: Connection, row: PendingRow, tenant: int) -> wire.Reason:
    """The needs that have not succeeded since the last execution, or too long ago."""
    words = await _unmet(connection, row.job_id, tenant)
    bounded = row.needs_by_at is not None and row.needs_by_at.year < 9999
    return wire.Reason(
        code="needs",
        message=f"it waits until these have succeeded: {words}" if words else "it is about to be queued",
        until=row.needs_by_at if bounded and words else None,
    )


async def _unmet(connection: Connection, job_id: UUID, tenant: int) -> str:
    """The unmet needs of a job; for a deleted one, the command that removes it."""
    found = await needs.needs_of(connection, tenant=tenant, child=job_id)
    return ", ".join(f"{n.job} ({_state_of(n)})" for n in found if n.state != "satisfied")


def _state_of(need: wire.Dependency) -> str:
    if need.deleted_at is not None:
        return "deleted: remove it with mainspring jobs needs remove"
    return "too long ago" if need.state == "stale" else need.state


def _waiting(row: PendingRow) -> wire.Reason:
    if row.due_at.year >= 9999:
        return wire.Reason(code="job_paused", message="its job is paused")
    if row.due_at <= row.now:
        return wire.Reason(code="due", message="it is due, and about to be queued")
    if not row.attempt and row.window is not None and row.fire_at is not None and row.fire_at <= row.now:
        return _placed(row.fire_at, row.window, row.due_at)
    words = f"attempt {row.attempt} failed; it waits for the next one" if row.attempt else "it is not due yet"
    return wire.Reason(code="retry" if row.attempt else "not_due", message=words, until=row.due_at)


def _placed(fire_at: datetime, window: str, due_at: datetime) -> wire.Reason:
    """The fire of a flexible job that has been placed later in its window."""
    end = instant(read_window(window).end_ms(millis(fire_at)))
    words = f"its job is flexible: this start was planned when it fired at {fire_at:%H:%M:%S} UTC, as the cheapest and"
    words += f" quietest from which it ends before {end:%Y-%m-%d %H:%M} UTC"
    return wire.Reason(code="placed", message=words, until=due_at)


async def _blocked(connection: Connection, row: PendingRow, tenant: int) -> wire.Reason:
    live = await why.pending_of_job(connection, tenant=tenant, job_id=row.job_id, limit=MAX_HOLDERS)
    before = [e for e, state in live if e != row.execution_id and (state == "running" or e < row.execution_id)]
    return wire.Reason(
        code="overlap", message="an earlier execution of the job has not ended", holders=before[:MAX_HOLDERS]
    )


async def _queued(connection: Connection, row: PendingRow, tenant: int) -> list[wire.Reason]:
    found: list[wire.Reason] = []
    settings = (await queues.queue_settings(connection, tenant=tenant)).get(row.queue)
    if settings is not None and settings.paused:
        found.append(wire.Reason(code="queue_paused", message=f"the queue {row.queue} is paused"))
    found += await _limits(connection, row, tenant)
    _, tenant_cap = (await queues.tenant_shares(connection)).get(tenant, (1.0, None))
    if (settings is not None and settings.cap is not None) or tenant_cap is not None:
        of_queue, of_tenant = await why.running_of_queue(connection, tenant=tenant, queue=row.queue)
        if settings is not None and settings.cap is not None and of_queue >= settings.cap:
            words = f"{of_queue} of at most {settings.cap} executions of the queue {row.queue} run"
            found.append(wire.Reason(code="queue_cap", message=words))
        if tenant_cap is not None and of_tenant >= tenant_cap:
            words = f"{of_tenant} of at most {tenant_cap} executions of this tenant run"
            found.append(wire.Reason(code="tenant_cap", message=words))
    servers = await why.live_sessions(connection, tenant=tenant)
    helped = await _helpers(connection, row, tenant)
    row, required = await _required(connection, row, tenant)
    if (reason := _no_worker(row.demand, row.queue, servers, helped)) is not None:
        return [*found, *required, reason]
    servers = [s for s in servers if row.queue in s.queues or s.queues & helped]
    found += await _room(connection, row, tenant)
    found += await _reserved(connection, row, tenant, settings or DEFAULTS)
    return [*found, *await _busy(connection, row, tenant, servers, held=bool(found))]


async def _required(connection: Connection, row: PendingRow, tenant: int) -> tuple[PendingRow, list[wire.Reason]]:
    """Add what the queue requires to the demand; return it as a reason, in case no worker has it."""
    minimum = await queues.min_isolation(connection, tenant=tenant, queue=row.queue)
    demand = demand_with(row.demand, minimum)
    if demand == row.demand:
        return row, []
    words = f"the queue {row.queue} requires isolation {minimum}"
    if not can_reach(row.demand.kind, minimum):
        words += f", which a {row.demand.kind} task can't have: move the job to another queue, or make it a container"
    return replace(row, demand=demand), [wire.Reason(code="min_isolation", message=words)]


async def _room(connection: Connection, row: PendingRow, tenant: int) -> list[wire.Reason]:
    """Preemption: the executions that make room for it, or the one it makes room for."""
    about = await evictions.evictions_about(connection, tenant=tenant, execution_id=row.execution_id, limit=MAX_HOLDERS)
    if makers := [e for e in about if e.urgent_id == row.execution_id and e.urgent_attempt == row.attempt]:
        names = " and ".join(dict.fromkeys(e.job or "another execution" for e in makers))
        words = f"it preempts {names} on {makers[0].worker}" if row.state == "queued" else f"it preempted {names}"
        return [wire.Reason(code="making_room", message=words, holders=[e.execution_id for e in makers])]
    mine = next((e for e in about if e.execution_id == row.execution_id), None)
    if mine is None or mine.attempt != row.attempt:
        return []
    words = f"it is being preempted by {mine.urgent_job}"
    if row.state == "queued":
        words = f"it was preempted by {mine.urgent_job} and continues when a slot is free"
    return [wire.Reason(code="preempted", message=words, holders=[mine.urgent_id])]


async def _reserved(connection: Connection, row: PendingRow, tenant: int, settings: QueueSettings) -> list[wire.Reason]:
    """Reservations that keep slots it could use: now, or before its timeout would be reached."""
    rows = await reservations.open_reservations(connection, tenant=None)
    if not rows:
        return []
    job = await jobs.job_by_id(connection, tenant=tenant, job_id=row.job_id)
    timeout_s = 0.0 if job is None else jobs.definition(job.spec).timeout_within(settings.max_duration_s)
    everywhere = await evictions.active_workers(connection)
    places = {
        p.session_id: p
        for p in everywhere
        if (p.tenant == tenant or p.shared)
        and row.queue in p.queues
        and not lacks(row.demand, p.kinds, p.labels, p.resources, p.functions)
    }
    found, layout = [], lay_out([r.reservation for r in rows], everywhere)
    for r in (r.reservation for r in rows):
        kept = {places[s].name: n for s, n in layout[r.reservation_id].items() if s in places}
        too_late = r.start_ms > millis(row.now) + timeout_s * 1000
        if kept and not too_late and not r.allows(tenant=tenant, queue=row.queue, job_id=row.job_id):
            where = " and ".join(f"{n} on {name}" for name, n in kept.items())
            begins = "" if r.start_ms <= millis(row.now) else f" from {instant(r.start_ms):%Y-%m-%d %H:%M:%S} UTC on"
            words = f"slots are reserved{begins} ({where}): {r.name if r.tenant == tenant else 'for another tenant'}"
            found.append(wire.Reason(code="reserved", message=words, until=instant(r.end_ms)))
    return found


async def _helpers(connection: Connection, row: PendingRow, tenant: int) -> set[str]:
    settings = await queues.queue_settings(connection, tenant=tenant)
    return {name for name, queue in settings.items() if row.queue in queue.may_help}


async def _limits(connection: Connection, row: PendingRow, tenant: int) -> list[wire.Reason]:
    ids = [i for i in (row.limit_id, row.rate_id) if i]
    states = await lines.limit_holders(connection, tenant=tenant, limit_ids=ids) if ids else {}
    found = []
    for state in states.values():
        if state.per_s is None and len(state.holders) >= state.most:
            words = f"the concurrency key {state.key!r} is full: {len(state.holders)} of {state.most} run"
            holders = [holder.execution_id for holder in state.holders[:MAX_HOLDERS]]
            found.append(wire.Reason(code="limit", message=words, holders=holders))
        elif state.next_at is not None and state.next_at > row.now:
            words = f"the rate of {state.key!r} is {state.most} per {state.per_s:g} s"
            found.append(wire.Reason(code="rate", message=words, until=state.next_at))
    return found


def _no_worker(
    demand: Demand, queue: str, servers: list[LiveWorker], helped: set[str] | frozenset[str] = frozenset()
) -> wire.Reason | None:
    """What the closest live worker lacks; None if one could run it when idle."""
    serving = [s for s in servers if (queue in s.queues or s.queues & helped) and s.state == "active"]
    if not serving:
        return wire.Reason(code="no_worker", message=f"no worker serves the queue {queue}")
    closest, missing = min(((s, s.lacks(demand)) for s in serving), key=lambda pair: len(pair[1]))
    if not missing:
        return None
    if (reason := _no_function(demand, queue, serving, servers)) is not None:
        return reason
    words = f"no worker matches: the closest, {closest.name}, lacks {' and '.join(missing)}"
    return wire.Reason(code="no_fit", message=words)


def _no_function(
    demand: Demand, queue: str, serving: list[LiveWorker], servers: list[LiveWorker]
) -> wire.Reason | None:
    """Which function no worker of the queue has, and what to do; None if that is not what is missing."""
    able = [s for s in serving if demand.kind in s.kinds]
    stated = [s.functions for s in able if s.functions is not None]
    if not demand.function or not able or len(stated) < len(able) or any(f.has(demand.function) for f in stated):
        return None
    words = f"no worker of the queue {queue} has the function {demand.function!r}"
    if (close := next(filter(None, (f.closest(demand.function) for f in stated)), None)) is not None:
        words += f" (did you mean {close!r}?)"
    has = [s for s in servers if queue not in s.queues and s.functions is not None and s.functions.has(demand.function)]
    module = demand.function.partition(":")[0] if ":" in demand.function else "MODULE"
    if has:
        words += f"; {has[0].name} has it, but serves {' and '.join(sorted(has[0].queues))}"
        todo = f"let that worker serve {queue} (-q {queue}), or move the job to its queue"
    else:
        todo = f"start a worker that has it (mainspring worker -m {module} -q {queue}), or correct task.function"
    return wire.Reason(code="no_function", message=f"{words}: {todo}")


async def _busy(
    connection: Connection, row: PendingRow, tenant: int, servers: list[LiveWorker], *, held: bool
) -> list[wire.Reason]:
    """Whether a worker is free, and how many are ahead. `held`: another reason keeps it from starting now."""
    fitting = [s for s in servers if not s.lacks(row.demand) and s.state == "active"]
    ahead = 0
    if row.line_id is not None:
        ahead = await why.ahead_in_line(
            connection,
            tenant=tenant,
            line_id=row.line_id,
            rank=row.rank,
            execution_id=row.execution_id,
            most=MAX_AHEAD,
        )
    line = f"{ahead:,}{'+' if ahead == MAX_AHEAD else ''} ahead of it"
    free = [s for s in fitting if s.busy < s.slots and not (row.demand.exclusive and s.busy)]
    if not free:
        names = [s.name for s in fitting]
        words = f"all {len(names)} matching workers are busy" if len(names) != 1 else f"the worker {names[0]} is busy"
        holders = await why.longest_running(connection, tenant=tenant, workers=names, most=MAX_HOLDERS)
        return [wire.Reason(code="busy", message=f"{words}; {line}", holders=holders)]
    if row.demand.resources:
        words = f"{len(free)} matching workers have a free slot, but may lack resources; {line}"
        return [wire.Reason(code="busy", message=words)]
    if held:
        return [wire.Reason(code="next", message=f"{line}, when that is over")] if ahead else []
    return [wire.Reason(code="next", message=f"it is about to start; {line}")]

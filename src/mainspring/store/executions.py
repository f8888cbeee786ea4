"""Executions as people submit, read and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.execution import FINAL, Trigger, fire_key, fire_ms_of
from mainspring.store.db import Connection
from mainspring.store.lines import LineRef
from mainspring.store.overlaps import release_blocked
from mainspring.store.queries import q

_step_names: dict[tuple[UUID, int], list[str]] = {}
"""Of versions of workflows, which never change, of which a page had a step that is a workflow itself."""
MOST_KNOWN = 200
EXCEPTIONS = FINAL - {"succeeded"}
"""States with an index of their own."""


@dataclass(frozen=True, slots=True)
class NewExecution:
    execution_id: UUID
    job_id: UUID
    trigger: Trigger
    due_at: datetime
    params: Any = None
    fire_at: datetime | None = None  # nominal; None: when it is due
    line: LineRef | None = None  # its job's, unless its params say otherwise


async def insert_executions(
    connection: Connection, *, tenant: int, new: Sequence[NewExecution], created_by: str
) -> set[UUID]:
    """The ids that were really added; a deleted job's are not."""
    rows = await connection.fetch(
        q("insert_executions"),
        tenant,
        [e.execution_id for e in new],
        [e.job_id for e in new],
        [e.trigger for e in new],
        [e.due_at for e in new],
        [millis(e.due_at) for e in new],
        [e.params for e in new],
        created_by,
        [e.line and e.line.line_id for e in new],
        [e.line and e.line.limit_id for e in new],
        [e.fire_at or e.due_at for e in new],
    )
    return {r["execution_id"] for r in rows}


async def insert_one(
    connection: Connection,
    *,
    tenant: int,
    job_id: UUID,
    trigger_key: str,
    params: Any,
    created_by: str,
    fire_at: datetime | None,
    session_id: UUID | None,
    line_id: int | None,
    version: int | None = None,
) -> Any:
    """The row as a claim would return it, with its state; None if there is no such job, or not in this version."""
    return await connection.fetchrow(
        q("insert_one"), tenant, job_id, trigger_key, params, created_by, fire_at, session_id, line_id, version
    )


async def insert_idempotency_key(
    connection: Connection, *, tenant: int, job_id: UUID, key: str, execution_id: UUID, digest: bytes
) -> tuple[UUID, bytes, bool]:
    """The execution this key stands for, the digest of the request that was first, and whether it is this one."""
    while True:
        row = await connection.fetchrow(q("insert_idempotency_key"), tenant, job_id, key, execution_id, digest)
        if row is not None:
            return row["execution_id"], bytes(row["digest"]), row["first"]


async def execution_by_id(connection: Connection, *, tenant: int, execution_id: UUID) -> wire.Execution | None:
    row = await connection.fetchrow(q("execution_by_id"), execution_id, tenant, _not_before([execution_id]))
    if row is None:  # cancelled before its time, it ended earlier than its id says
        row = await connection.fetchrow(q("execution_by_id"), execution_id, tenant, instant(0))
    return None if row is None else (await _executions(connection, [row]))[0]


async def executions_by_id(
    connection: Connection, *, tenant: int, execution_ids: Sequence[UUID], early: bool = False
) -> list[wire.Execution]:
    """With `early`, also those that were cancelled before their time: they ended earlier than their ids say."""
    if not execution_ids:
        return []
    rows = await connection.fetch(q("executions_by_id"), list(execution_ids), tenant, _not_before(execution_ids))
    if early and len(rows) < len(execution_ids):
        missing = list({*execution_ids} - {r["execution_id"] for r in rows})
        rows += await connection.fetch(q("executions_by_id"), missing, tenant, instant(0))
    return await _executions(connection, rows)


async def list_executions(
    connection: Connection,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_id: UUID | None = None,
    states: Sequence[str] | None = None,
) -> list[wire.Execution]:
    if job_id is None and states and EXCEPTIONS.issuperset(states):
        rows = await connection.fetch(q("list_exceptions"), tenant, before, limit, list(set(states)))
    else:
        rows = await connection.fetch(q("list_executions"), tenant, before, limit, job_id, states or None)
    return await _executions(connection, rows)


async def list_fires(
    connection: Connection, *, tenant: int, job_id: UUID, before: UUID, limit: int
) -> list[tuple[int, wire.LedgerEntry]]:
    """Each with the version of the job that it belongs to."""
    rows = await connection.fetch(q("list_fires"), tenant, job_id, before, limit)
    return [
        (
            r["version"],
            wire.LedgerEntry(
                fire_at=r["fire_at"],
                state=r["state"],
                reason=r["reason"],
                execution_id=r["execution_id"],
                late_ms=wire.late_ms(r["due_at"], r["started_at"]),
                duration_ms=r["duration_ms"],
                fires=r["fires"],
            ),
        )
        for r in rows
    ]


async def next_one_time(
    connection: Connection, *, tenant: int, limit: int, each: int
) -> list[tuple[datetime, UUID, str]]:
    """When, and which job; `each` bounds how many of a shard are looked at."""
    rows = await connection.fetch(q("next_one_time"), tenant, limit, each)
    return [(r["fire_at"], r["job_id"], r["name"]) for r in rows]


async def execution_prefix(connection: Connection, *, tenant: int, prefix: str) -> list[UUID]:
    """At most two ids that begin with these hex digits."""
    low, high = UUID(prefix.ljust(32, "0")), UUID(prefix.ljust(32, "f"))
    return [r["execution_id"] for r in await connection.fetch(q("execution_prefix"), tenant, low, high)]


async def list_attempts(connection: Connection, *, tenant: int, execution_id: UUID) -> list[wire.Attempt]:
    rows = await connection.fetch(q("list_attempts"), execution_id, tenant)
    return [
        wire.Attempt(
            attempt=r["attempt"],
            outcome=r["outcome"],
            exit_code=r["exit_code"],
            error=r["error"],
            started_at=r["started_at"],
            ended_at=r["ended_at"],
            worker=r["worker_name"],
            due_at=r["due_at"],
            queued_at=r["queued_at"],
        )
        for r in rows
    ]


async def cancel_pending(connection: Connection, *, tenant: int, execution_id: UUID, reason: str) -> bool:
    """Whether it had not started. Needs a transaction: what waited for it is released in the same."""
    row = await connection.fetchrow(q("cancel_pending"), execution_id, tenant, reason)
    if row is not None and row["chained"]:
        await release_blocked(connection, job_ids=[row["job_id"]])
    return row is not None


async def cancel_running(connection: Connection, *, tenant: int, execution_id: UUID, reason: str) -> bool:
    return await connection.fetchval(q("cancel_running"), execution_id, tenant, reason) is not None


async def newest_live(connection: Connection, *, tenant: int, job_id: UUID) -> list[tuple[UUID, str]]:
    """The newest execution that has not ended, with its state; none if there is none."""
    rows = await connection.fetch(q("newest_live"), job_id, tenant)
    return [(r["execution_id"], r["state"]) for r in rows]


async def cancel_pending_of_job(
    connection: Connection, *, tenant: int, job_id: UUID, reason: str, trigger: Trigger | None = None
) -> list[UUID]:
    rows = await connection.fetch(q("cancel_pending_of_job"), job_id, tenant, reason, trigger)
    return [r["execution_id"] for r in rows]


async def skip_undecided(
    connection: Connection, *, tenant: int, job_id: UUID, version: int, last_ms: int, count: int, reason: str
) -> None:
    await connection.execute(
        q("skip_undecided"),
        job_id,
        tenant,
        instant(last_ms),
        f"{last_ms:012x}",
        fire_key(last_ms),
        reason,
        count,
        version,
    )


async def hold_fires(connection: Connection, *, tenant: int, job_id: UUID) -> None:
    await connection.execute(q("hold_fires"), job_id, tenant)


async def free_fires(connection: Connection, *, tenant: int, job_id: UUID, catch_up_s: float | None = None) -> None:
    """With `catch_up_s`, a fire whose time has passed less than so long ago is not given up."""
    await connection.execute(q("free_fires"), job_id, tenant, catch_up_s is not None, catch_up_s or 0.0)


async def live_counts(connection: Connection, *, tenant: int) -> dict[str, int]:
    """Return the number of executions in each live state."""
    return {r["state"]: r["n"] for r in await connection.fetch(q("live_counts"), tenant)}


async def failed_count(connection: Connection, *, tenant: int, since: datetime) -> int:
    """Return the number of executions that failed, timed out or were lost since an instant."""
    return int(await connection.fetchval(q("failed_count"), tenant, since))


def _not_before(execution_ids: Sequence[UUID]) -> datetime:
    # An id that somebody made up may name a later instant than a calendar has.
    return instant(min(LAST_MS, *map(fire_ms_of, execution_ids)))


async def _executions(connection: Connection, rows: Sequence[Any]) -> list[wire.Execution]:
    for of in {
        (r["step_job"], r["step_version"]) for r in rows if r["step_run"] is not None and r["step_name"] is None
    }:
        if of not in _step_names:
            if len(_step_names) > MOST_KNOWN:
                _step_names.clear()
            _step_names[of] = await connection.fetchval(q("step_names"), *of) or []
    return [_execution(r) for r in rows]


def _execution(r: Any) -> wire.Execution:
    return wire.Execution(
        execution_id=r["execution_id"],
        job_id=r["job_id"],
        job=r["job_name"],
        version=r["version"],
        state=r["state"],
        trigger=r["trigger"],
        queue=r["queue"],
        priority=r["priority"],
        attempt=r["attempt"],
        fire_at=r["fire_at"],
        due_at=_due(r),
        queued_at=r["queued_at"],
        started_at=r["started_at"],
        finished_at=r["finished_at"],
        duration_ms=r["duration_ms"],
        exit_code=r["exit_code"],
        worker=r["worker_name"],
        cancelling=r["cancel_at"] is not None,
        reason=r["reason"],
        error=r["error"],
        result=r["result"],
        params=r["params"],
        created_by=r["created_by"],
        fires=r["fires"],
        backfill_id=r["backfill_id"],
        progress=_progress(r["progress"], r["attempt"]),
        step=_step(r),
        metadata=r.get("metadata") or {},
    )


def _step(r: Any) -> wire.StepOf | None:
    if r["step_run"] is None:
        return None
    names = _step_names.get((r["step_job"], r["step_version"]), [])
    name = r["step_name"] or (names[r["step_number"]] if r["step_number"] < len(names) else None)
    if name is None:
        return None
    return wire.StepOf(run_id=r["step_run"], workflow=r["step_workflow"], name=name, item=r["step_item"])


def _progress(told: Any, attempt: int) -> wire.Progress | None:
    """As the session's last heartbeat said it; what an earlier attempt said is over."""
    if told is None or told[0] != attempt:
        return None
    _, done, total, rate, message = told
    left = None if total is None else max(0.0, total - done)
    return wire.Progress(
        done=done,
        total=total,
        rate=rate,
        message=message,
        percent=None if not total else round(min(100.0, 100 * done / total), 1),
        eta_s=None if left is None or not rate else round(left / rate, 1),
    )


def _due(r: Any) -> datetime:
    """What a pause holds, or what waits for other jobs, is due never in the tables; people know it by its fire."""
    due_at: datetime = r["fire_at"] if r["due_at"].year >= 9999 else r["due_at"]
    return due_at

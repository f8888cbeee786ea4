"""Executions: insert, read, cancel, count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any
from uuid import UUID

from asyncpg.pgproto.pgproto import UUID as FastUUID

from mainspring import wire
from mainspring.clock import LAST_MS, instant, millis
from mainspring.domain.execution import FINAL, Trigger, fire_key, fire_ms_of, new_id_suffix_bytes
from mainspring.store import trigger_starts
from mainspring.store.db import Connection
from mainspring.store.hints import hint_batch, hint_cancelled, hint_placed, hint_waiting
from mainspring.store.lines import LineRef
from mainspring.store.overlaps import release_blocked
from mainspring.store.queries import q

_step_names: dict[tuple[UUID, int], list[str]] = {}
"""Step names by workflow version; versions never change. Only of workflows with a step that is a workflow itself."""
MAX_CACHED_VERSIONS = 200
WAITING_COUNTED = 150
"""Waiting executions of each shard that are counted."""
BLOCKED_COUNTED = 5_000
EXCEPTIONS = FINAL - {"succeeded"}
"""States served by the partial indexes history_exceptions and history_job_exceptions."""


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
    """Insert executions; return the ids that were added. Those of a deleted job are not."""
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
    hint_placed(connection, rows)
    return {r["execution_id"] for r in rows}


@dataclass(frozen=True, slots=True)
class SubmissionColumns:
    """Requested manual executions, by column: a batch is one array parameter each."""

    suffixes: Sequence[str]  # of their ids; see domain/execution.py
    tenants: Sequence[int]
    job_ids: Sequence[UUID]
    versions: Sequence[int | None]  # None: any
    created_by: Sequence[str]
    at_ms: Sequence[int | None]  # None: due now
    fire_at: Sequence[datetime | None]  # nominal; None: when it is due
    params: Sequence[Any]
    lines: Sequence[LineRef | None]  # None: the line of its job
    sessions: Sequence[UUID | None]  # with a free slot, for direct handoff
    session_lines: Sequence[int | None]  # the line for which the slot was reserved
    keys: Sequence[str | None] = ()  # idempotency keys; None, or no such column: without
    digests: Sequence[bytes | None] = ()  # of the requests with keys

    @property
    def has_sessions(self) -> bool:
        return any(self.sessions)

    def keyed(self) -> dict[str, tuple[str, str]]:
        """The idempotency keys and their digests in hexadecimal, by the suffixes of ids."""
        return {
            suffix: (key, digest.hex())
            for suffix, key, digest in zip(self.suffixes, self.keys, self.digests, strict=True)
            if key is not None and digest is not None
        }

    def arguments(self) -> tuple[Sequence[Any] | None, ...]:
        # Encoding an array costs the driver about a microsecond per element, so columns of nulls are sent as one null.
        has_lines = any(self.lines)
        return (
            self.suffixes,
            self.tenants,
            self.job_ids,
            _unless_null(self.versions),
            self.created_by,
            _unless_null(self.at_ms),
            _unless_null(self.fire_at),
            _unless_null(self.params),
            [line and line.line_id for line in self.lines] if has_lines else None,
            [line and line.limit_id for line in self.lines] if has_lines else None,
            self.sessions if self.has_sessions else None,
            self.session_lines if self.has_sessions else None,
        )


def _unless_null(column: Sequence[Any]) -> Sequence[Any] | None:
    return None if all(value is None for value in column) else column


async def has_live(connection: Connection) -> bool:
    """Whether any execution has not ended. Over all tenants: of an installation that one test has to itself."""
    return bool(await connection.fetchval(q("has_live")))


@dataclass(frozen=True, slots=True)
class JobSubmissions:
    """Requested manual executions of one job, in the lines of that job."""

    job_id: UUID
    at_ms: Sequence[int | None]  # None: due now
    fire_at: Sequence[datetime | None]  # nominal; None: when it is due
    params: Sequence[Any]


async def submit_many(
    connection: Connection, new: Sequence[JobSubmissions], *, tenant: int, by: str
) -> dict[UUID, list[UUID]]:
    """Insert manual executions, which queue; return their ids by job, without jobs that are deleted or of others."""
    ends = list(accumulate(len(each.at_ms) for each in new))
    suffixes = new_id_suffix_bytes(ends[-1] if ends else 0)
    rows = await connection.fetch(
        q("submit_many"),
        tenant,
        by,
        [each.job_id for each in new],
        [0, *ends[:-1]],
        [end - 1 for end in ends],
        b"".join(suffixes),
        _unless_null([at for each in new for at in each.at_ms]),
        _unless_null([at for each in new for at in each.fire_at]),
        _unless_null([params for each in new for params in each.params]),
    )
    found = {row["job_id"]: row for row in rows}
    ids: dict[UUID, list[UUID]] = {}
    for each, end in zip(new, ends, strict=True):
        if (row := found.get(each.job_id)) is not None:
            ids[each.job_id] = _ids(each.at_ms, suffixes[end - len(each.at_ms) : end], row["now_ms"])
            hint_batch(connection, row, each.at_ms)
    return ids


def _ids(at_ms: Sequence[int | None], suffixes: Sequence[bytes], now_ms: int) -> list[UUID]:
    """The ids of executions that were inserted at a time: their due times, and the suffixes."""
    now = now_ms.to_bytes(6, "big")
    return [
        FastUUID((now if at is None or at <= now_ms else at.to_bytes(6, "big")) + suffix)
        for at, suffix in zip(at_ms, suffixes, strict=True)
    ]


async def submit(connection: Connection, new: SubmissionColumns, *, limited: int | None = None) -> list[Any]:
    """Insert manual executions; return their rows in order, each in the form of a claim.

    None: the job is deleted, has another tenant or version, or the idempotency key is known. `limited`: the tenant of
    all of them, whose quota is checked; if it has no room, or is suspended, none is inserted.
    """
    if limited is not None:
        rows = await connection.fetch(q("submit_limited"), *new.arguments(), new.keyed(), limited)
    elif any(new.keys):
        rows = await connection.fetch(q("submit_keyed"), *new.arguments(), new.keyed())
    else:
        rows = await connection.fetch(q("submit"), *new.arguments())
    hint_placed(connection, rows)
    if len(rows) == 1 == len(new.suffixes):
        return rows
    by_suffix = {row["execution_id"].hex[12:]: row for row in rows}
    return [by_suffix.get(suffix) for suffix in new.suffixes]


async def begin_execution(
    connection: Connection, *, tenant: int, job_id: UUID, session_id: UUID, suffix: str, created_by: str
) -> UUID | None:
    """Insert an execution that a session runs on its own; None if the job is deleted or the session has ended."""
    found: UUID | None = await connection.fetchval(q("begin_execution"), job_id, tenant, session_id, suffix, created_by)
    return found


async def idempotency_key(connection: Connection, *, tenant: int, job_id: UUID, key: str) -> tuple[UUID, bytes] | None:
    """Return the execution of an idempotency key, and the digest of its request."""
    row = await connection.fetchrow(q("idempotency_key"), tenant, job_id, key)
    return None if row is None else (row["execution_id"], bytes(row["digest"]))


async def insert_idempotency_key(
    connection: Connection, *, tenant: int, job_id: UUID, key: str, execution_id: UUID, digest: bytes
) -> tuple[UUID, bytes, bool]:
    """Return the execution of an idempotency key, the digest of its first request, and whether this is the first."""
    while True:
        row = await connection.fetchrow(q("insert_idempotency_key"), tenant, job_id, key, execution_id, digest)
        if row is not None:
            return row["execution_id"], bytes(row["digest"]), row["first"]


def submitted(row: Any, *, job: str, metadata: dict[str, Any]) -> wire.Execution:
    """Return an execution as it was committed by `submit`."""
    return wire.Execution(
        execution_id=row["execution_id"],
        job_id=row["job_id"],
        job=job,
        version=row["version"],
        state=row["state"],
        trigger="manual",
        queue=row["queue"],
        priority=row["priority"],
        attempt=row["attempt"],
        fire_at=row["fire_at"],
        due_at=row["due_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        finished_at=None,
        duration_ms=None,
        exit_code=None,
        worker=row["worker_name"],
        cancelling=False,
        reason=None,
        error=None,
        result=None,
        params=row["params"],
        created_by=row["created_by"],
        fires=1,
        metadata=metadata,
    )


async def execution_by_id(connection: Connection, *, tenant: int, execution_id: UUID) -> wire.Execution | None:
    row = await connection.fetchrow(q("execution_by_id"), execution_id, tenant, _not_before([execution_id]))
    if row is None:  # cancelled early: it ended before the time in its id
        row = await connection.fetchrow(q("execution_by_id"), execution_id, tenant, instant(0))
    return None if row is None else (await _executions(connection, [row]))[0]


async def executions_by_id(
    connection: Connection, *, tenant: int, execution_ids: Sequence[UUID], early: bool = False
) -> list[wire.Execution]:
    """Return executions by id; with `early` also those that were cancelled before the time in their ids."""
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
    if states and EXCEPTIONS.issuperset(states):
        wanted = (tenant, before, limit, list(set(states)))
        if job_id is None:
            rows = await connection.fetch(q("list_exceptions"), *wanted)
        else:
            rows = await connection.fetch(q("list_exceptions_of_job"), *wanted, job_id)
    elif states and set(states) == {"running"}:
        rows = await connection.fetch(q("list_running"), tenant, before, limit, job_id)
    elif job_id is None:
        rows = await connection.fetch(q("list_executions"), tenant, before, limit, states or None)
    else:
        rows = await connection.fetch(q("list_executions_of_job"), tenant, before, limit, states or None, job_id)
    return await _executions(connection, rows)


async def list_fires(
    connection: Connection, *, tenant: int, job_id: UUID, before: UUID, limit: int
) -> list[tuple[int, wire.LedgerEntry]]:
    """Return a page of fires, and executions that triggers started, each with its version of the job."""
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
                started_by=None if r["trigger_id"] is None else trigger_starts.started_by(r),
                due_at=r["due_at"] if r["due_at"] > r["fire_at"] and r["due_at"].year < 9999 else None,
            ),
        )
        for r in rows
    ]


async def next_one_time(
    connection: Connection, *, tenant: int, limit: int, each: int
) -> list[tuple[datetime, UUID, str, str]]:
    """Return (fire time, job, name, queue); `each` bounds the executions read per shard."""
    rows = await connection.fetch(q("next_one_time"), tenant, limit, each)
    return [(r["fire_at"], r["job_id"], r["name"], r["queue"]) for r in rows]


async def execution_prefix(connection: Connection, *, tenant: int, prefix: str) -> list[UUID]:
    """Return at most two ids that begin with these hex digits."""
    low, high = UUID(prefix.ljust(32, "0")), UUID(prefix.ljust(32, "f"))
    return [r["execution_id"] for r in await connection.fetch(q("execution_prefix"), tenant, low, high)]


async def latest_requested(connection: Connection, *, tenant: int, by: str, before: UUID, most: int) -> UUID | None:
    """Return the latest execution before an id that `by` requested, or else any user; among the last `most`."""
    found: UUID | None = await connection.fetchval(q("latest_requested"), tenant, before, most, str(by))
    return found


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
            duration_ms=r["duration_ms"],
        )
        for r in rows
    ]


async def cancel_pending(
    connection: Connection, *, tenant: int, execution_id: UUID, reason: str, release: bool = True
) -> bool:
    """Cancel an execution that has not started; return whether it had not.

    Needs a transaction: the blocked execution behind it is released in the same one, here or by the caller.
    """
    row = await connection.fetchrow(q("cancel_pending"), execution_id, tenant, reason)
    if release and row is not None and row["chained"]:
        await release_blocked(connection, job_ids=[row["job_id"]])
    return row is not None


async def cancel_running(connection: Connection, *, tenant: int, execution_id: UUID, reason: str) -> bool:
    rows = await connection.fetch(q("cancel_running"), execution_id, tenant, reason)
    hint_cancelled(connection, rows)
    return bool(rows)


async def newest_live(connection: Connection, *, tenant: int, job_id: UUID) -> list[tuple[UUID, str]]:
    """Return the newest live execution and its state, in a list of at most one."""
    rows = await connection.fetch(q("newest_live"), job_id, tenant)
    return [(r["execution_id"], r["state"]) for r in rows]


async def cancel_pending_of_job(
    connection: Connection, *, tenant: int, job_id: UUID, reason: str, trigger: Trigger | None = None
) -> list[UUID]:
    rows = await connection.fetch(q("cancel_pending_of_job"), job_id, tenant, reason, trigger)
    return [r["execution_id"] for r in rows]


async def cancel_pending_fires(connection: Connection, *, tenant: int, job_ids: Sequence[UUID], reason: str) -> None:
    await connection.execute(q("cancel_pending_fires"), list(job_ids), tenant, reason)


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
    """End the hold of a pause; with `catch_up_s`, a fire missed less than that long ago still runs."""
    due_at = await connection.fetchval(q("free_fires"), job_id, tenant, catch_up_s is not None, catch_up_s or 0.0)
    if due_at is not None:
        hint_waiting(connection, due_at)


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Executions that run, and that wait or are blocked; not `exact`: the latter are an estimate."""

    running: int
    waiting: int
    exact: bool


async def live_counts(
    connection: Connection, *, tenant: int, of_shard: int = WAITING_COUNTED, blocked: int = BLOCKED_COUNTED
) -> LiveCounts:
    """Count running executions, and waiting ones within a bound."""
    r = await connection.fetchrow(q("live_counts"), tenant, of_shard, blocked)
    assert r is not None
    waits, stands = r["waiting"], r["blocked"]
    if r["more_waiting"]:
        waits = round(waits * max(1.0, r["estimated_waiting"] / r["all_waiting"]))
    if more_blocked := r["all_blocked"] >= blocked:
        stands = round(stands * max(1.0, r["estimated_blocked"] / r["all_blocked"]))
    return LiveCounts(r["running"], waits + stands, not r["more_waiting"] and not more_blocked)


async def failed_count(connection: Connection, *, tenant: int, since: datetime) -> int:
    """Return the number of executions that failed, timed out or were lost since an instant."""
    return int(await connection.fetchval(q("failed_count"), tenant, since))


def _not_before(execution_ids: Sequence[UUID]) -> datetime:
    # A made-up id may contain an instant beyond the range of datetime.
    return instant(min(LAST_MS, *map(fire_ms_of, execution_ids)))


async def _executions(connection: Connection, rows: Sequence[Any]) -> list[wire.Execution]:
    for of in {
        (r["step_job"], r["step_version"]) for r in rows if r["step_run"] is not None and r["step_name"] is None
    }:
        if of not in _step_names:
            if len(_step_names) > MAX_CACHED_VERSIONS:
                _step_names.clear()
            _step_names[of] = await connection.fetchval(q("step_names"), *of) or []
    by = {r["execution_id"]: r["created_by"] for r in rows}
    tenant = rows[0]["tenant_id"] if rows else 0  # the rows of a query belong to one
    starts = await trigger_starts.starts_of(connection, tenant=tenant, created_by=by)
    return [_execution(r, starts.get(r["execution_id"])) for r in rows]


def _execution(r: Any, started_by: wire.StartedBy | None) -> wire.Execution:
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
        started_at=_started(r),
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
        started_by=started_by,
    )


def _started(r: Any) -> datetime | None:
    """When the current attempt started; null while the execution waits for its next one, or if it ended then."""
    return None if r["session_id"] is None else r["started_at"]


def _step(r: Any) -> wire.StepOf | None:
    if r["step_run"] is None:
        return None
    names = _step_names.get((r["step_job"], r["step_version"]), [])
    name = r["step_name"] or (names[r["step_number"]] if r["step_number"] < len(names) else None)
    if name is None:
        return None
    return wire.StepOf(run_id=r["step_run"], workflow=r["step_workflow"], name=name, item=r["step_item"])


def _progress(reported: Any, attempt: int) -> wire.Progress | None:
    """Return the progress of the last heartbeat, unless it is of an earlier attempt."""
    if reported is None or reported[0] != attempt:
        return None
    _, done, total, rate, message = reported
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
    """Return the due time, or the fire time where a pause or needed jobs hold the execution (due_at infinite)."""
    due_at: datetime = r["fire_at"] if r["due_at"].year >= 9999 else r["due_at"]
    return due_at

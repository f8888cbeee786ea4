"""Rows of workflow runs. A run is locked before it or its steps change; every statement checks its assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.workflow.run import (
    ENGINE_SESSION,
    ClaimedRun,
    ClosedRun,
    LockedRuns,
    NewRun,
    Run,
    StepRef,
)
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q

SLA_SAMPLE = 10_000
"""Newest runs that an SLA ratio is computed from."""


async def startable_runs(connection: Connection, *, limit: int) -> list[tuple[UUID, int | None]]:
    """Return queued executions of workflows of all tenants, each with its concurrency key."""
    return [(r["execution_id"], r["limit_id"]) for r in await connection.fetch(q("startable_runs"), limit)]


async def workflow_lines(connection: Connection) -> tuple[set[int], int]:
    """Return the lines of workflows of all tenants, and the newest line of all."""
    rows = await connection.fetch(q("workflow_lines"))
    newest = max((r["line_id"] or 0 for r in rows if r["newest"]), default=0)
    return {r["line_id"] for r in rows if not r["newest"]}, newest


async def claim_runs(connection: Connection, *, execution_ids: Sequence[UUID]) -> list[ClaimedRun]:
    """Set queued executions of workflows to running; those of any tenant."""
    return [
        ClaimedRun(
            r["execution_id"],
            r["job_id"],
            r["tenant_id"],
            r["version"],
            r["attempt"],
            r["fire_at"],
            r["params"],
            r["created_by"],
            r["started_at"],
            r["depth"] or 0,
        )
        for r in await connection.fetch(q("claim_runs"), list(execution_ids), ENGINE_SESSION)
    ]


async def insert_runs(connection: Connection, *, new: Sequence[NewRun]) -> None:
    of = [n.claimed for n in new]
    await connection.execute(
        q("insert_runs"),
        [c.run_id for c in of],
        [c.tenant for c in of],
        [c.job_id for c in of],
        [n.version for n in new],
        [c.attempt for c in of],
        [c.depth for c in of],
        [n.open_steps for n in new],
        [c.params for c in of],
        [c.fire_at for c in of],
        [c.started_at for c in of],
        [n.timeout_s for n in new],
        [n.sla_s for n in new],
        [c.created_by for c in of],
        [n.rerun_of for n in new],
    )
    if any(n.timeout_s is not None for n in new):
        hint(connection, ports.RUNS, ports.WAKE)


async def lock_run(connection: Connection, *, tenant: int, run_id: UUID) -> Run | None:
    row = await connection.fetchrow(q("lock_run"), run_id, tenant)
    return None if row is None else _run(row)


async def run_principals(connection: Connection, *, tenant: int, run_id: UUID) -> frozenset[str]:
    """Return who is behind a run: who started it, what it repeats or what contains it, and who wrote the workflows."""
    return frozenset(r["principal"] for r in await connection.fetch(q("run_principals"), run_id, tenant))


async def lock_runs(connection: Connection, *, execution_ids: Sequence[UUID]) -> LockedRuns:
    """Lock the runs of executions that the caller has just ended."""
    return locked_runs(await connection.fetch(q("lock_runs"), list(execution_ids)))


def locked_runs(rows: Iterable[Any]) -> LockedRuns:
    """Read rows of locked runs, each with an execution and its step. Rows without a run are left out."""
    found = [r for r in rows if r["run_id"] is not None]
    steps = {r["execution_id"]: StepRef(r["run_id"], r["step"], r["item"]) for r in found}
    return LockedRuns({r["run_id"]: _run(r) for r in found}, steps)


async def close_runs(connection: Connection, *, closing: Sequence[tuple[UUID, str, str | None]]) -> list[ClosedRun]:
    """Close locked runs, given as (run, state, reason)."""
    rows = await connection.fetch(
        q("close_runs"),
        [run_id for run_id, _, _ in closing],
        [state for _, state, _ in closing],
        [reason for _, _, reason in closing],
    )
    return [ClosedRun(r["run_id"], r["state"], r["attempt"], r["reason"], r["lasted_s"], r["in_time"]) for r in rows]


async def cancel_run(connection: Connection, *, tenant: int, run_id: UUID, ends_as: str, reason: str) -> bool:
    return await connection.fetchval(q("cancel_run"), run_id, tenant, ends_as, reason) is not None


async def runs_to_cancel(connection: Connection, *, limit: int) -> list[tuple[UUID, int, str]]:
    """Return (run, tenant, reason) of runs of all tenants whose execution has a cancel request."""
    rows = await connection.fetch(q("runs_to_cancel"), ENGINE_SESSION, limit)
    return [(r["execution_id"], r["tenant_id"], r["cancel_reason"] or "cancelled") for r in rows]


async def timed_out_runs(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Return (run, tenant) of runs of all tenants that have exceeded their timeout."""
    return [(r["run_id"], r["tenant_id"]) for r in await connection.fetch(q("timed_out_runs"), limit)]


async def next_run_timer_s(connection: Connection) -> float | None:
    """Return the seconds until the next step wakes or the next run times out, over all tenants."""
    found = await connection.fetchval(q("next_run_timer"))
    return None if found is None else float(found)


async def half_cancelled_runs(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Return (run, tenant) of cancelling runs of all tenants with a part that was not asked to end."""
    return [(r["run_id"], r["tenant_id"]) for r in await connection.fetch(q("half_cancelled_runs"), limit)]


async def insert_run_event(
    connection: Connection, *, tenant: int, run_id: UUID, name: str, payload: Any, by: str
) -> bool:
    """Return whether it is the first event of that name. The caller has locked the run or its execution."""
    is_first = await connection.fetchval(q("insert_run_event"), run_id, tenant, name, payload, by) is not None
    if is_first:  # the leader skipped the execution while it was locked
        hint(connection, ports.RUNS, ports.WAKE)
    return is_first


async def event_of_run(connection: Connection, *, run_id: UUID, name: str) -> tuple[Any, datetime, str] | None:
    """Return (payload, received_at, received_by). The caller has locked the run."""
    r = await connection.fetchrow(q("event_of_run"), run_id, name)
    return None if r is None else (r["payload"], r["received_at"], r["received_by"])


async def run_by_id(connection: Connection, *, tenant: int, run_id: UUID) -> Any | None:
    return await connection.fetchrow(q("run_by_id"), run_id, tenant)


async def run_of_execution(connection: Connection, *, tenant: int, execution_id: UUID) -> UUID | None:
    """Return the run that an execution is, or is a step of."""
    found: UUID | None = await connection.fetchval(q("run_of_execution"), execution_id, tenant)
    return found


async def list_runs(
    connection: Connection,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_id: UUID | None = None,
    states: Sequence[str] | None = None,
) -> list[Any]:
    return await connection.fetch(q("list_runs"), tenant, before, limit, job_id, states or None)


async def list_pending_runs(
    connection: Connection, *, tenant: int, before: UUID, limit: int, job_id: UUID | None = None
) -> list[Any]:
    return await connection.fetch(q("list_pending_runs"), tenant, before, limit, job_id)


async def grid_of_runs(connection: Connection, *, tenant: int, job_id: UUID, limit: int) -> list[Any]:
    return await connection.fetch(q("grid_of_runs"), job_id, tenant, limit)


async def sla_ratios(connection: Connection, *, tenant: int) -> dict[str, float]:
    """Return by workflow the share of the runs due in the last day that succeeded in time."""
    return {r["name"]: r["ratio"] for r in await connection.fetch(q("sla_ratios"), tenant, SLA_SAMPLE)}


async def forget_runs(connection: Connection, *, after_s: float, limit: int) -> int:
    """Delete old runs of all tenants; return how many."""
    return len(await connection.fetch(q("forget_runs"), after_s, limit))


def _run(r: Any) -> Run:
    return Run(
        r["run_id"],
        r["tenant_id"],
        r["job_id"],
        r["version"],
        r["state"],
        r["params"],
        r["fire_at"],
        r["started_at"],
        r["depth"],
        r["ends_as"],
    )

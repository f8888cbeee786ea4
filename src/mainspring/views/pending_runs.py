"""Runs that have not started, or ended before they started: an execution of a workflow without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, MainspringError, NotFound
from mainspring.runs.plans import PlanCache
from mainspring.store import executions, runs
from mainspring.store.db import Connection

PENDING = ("waiting", "queued", "blocked")


async def pending_run(connection: Connection, plans: PlanCache, run_id: UUID, *, tenant: int) -> wire.Run | None:
    """The run that an execution of a workflow will become, or would have become if it had not ended."""
    found = await executions.execution_by_id(connection, tenant=tenant, execution_id=run_id)
    if found is None or found.state == "running":
        return None
    if found.state == "succeeded" or found.duration_ms:  # it was a run, whose rows are past their retention
        return None
    if await plans.get(connection, tenant=tenant, job_id=found.job_id, version=found.version) is None:
        return None
    pending = found.state in PENDING
    return wire.Run(
        run_id=run_id,
        job_id=found.job_id,
        workflow=found.job,
        version=found.version,
        state="queued" if pending else found.state,  # type: ignore[arg-type]
        open_steps=0,
        params=found.params,
        fire_at=found.fire_at,
        created_by=found.created_by,
        started_by=found.started_by,
        finished_at=found.finished_at,
        reason=None if pending else found.reason or found.error,
    )


async def has_no_steps(connection: Connection, plans: PlanCache, run_id: UUID, *, tenant: int) -> MainspringError:
    """The error for a request that needs the steps of a run that has none."""
    found = await pending_run(connection, plans, run_id, tenant=tenant)
    if found is None:
        return NotFound(f"there is no run {run_id}")
    if found.state == "queued":
        return Conflict("the run has not started: it is queued (mainspring why shows the reason)", code="not_begun")
    message = f"the run ended before it started ({found.state}): start a new one with mainspring workflows run"
    return Conflict(message, code="already_final")


async def list_pending(
    connection: Connection, *, tenant: int, before: UUID, limit: int, job_id: UUID | None
) -> Sequence[wire.Run]:
    """Queued runs, newest first."""
    rows = await runs.list_pending_runs(connection, tenant=tenant, before=before, limit=limit, job_id=job_id)
    return [_as_run(r) for r in rows]


def _as_run(r: Any) -> wire.Run:
    return wire.Run(
        run_id=r["run_id"],
        job_id=r["job_id"],
        workflow=r["name"],
        version=r["version"],
        state="queued",
        open_steps=0,
        params=r["params"],
        fire_at=r["fire_at"],
        created_by=r["created_by"],
    )

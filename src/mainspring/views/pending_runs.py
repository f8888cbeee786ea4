"""Runs whose turn has not come, or never came: there is an execution of the workflow, and no run yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, MainspringError, NotFound
from mainspring.runs.plans import PlanCache
from mainspring.store import executions, runs
from mainspring.store.db import Connection

AHEAD = ("waiting", "queued", "blocked")


async def unbegun(connection: Connection, plans: PlanCache, run_id: UUID, *, tenant: int) -> wire.Run | None:
    """The run that an execution of a workflow will be, or would have been had it not ended before."""
    found = await executions.execution_by_id(connection, tenant=tenant, execution_id=run_id)
    if found is None or found.state == "running":
        return None
    if found.state == "succeeded" or found.duration_ms:  # it was a run, and what there was of it is gone
        return None
    if await plans.get(connection, tenant=tenant, job_id=found.job_id, version=found.version) is None:
        return None
    ahead = found.state in AHEAD
    return wire.Run(
        run_id=run_id,
        job_id=found.job_id,
        workflow=found.job,
        version=found.version,
        state="queued" if ahead else found.state,  # type: ignore[arg-type]
        open_steps=0,
        params=found.params,
        fire_at=found.fire_at,
        created_by=found.created_by,
        finished_at=found.finished_at,
        reason=None if ahead else found.reason or found.error,
    )


async def no_steps(connection: Connection, plans: PlanCache, run_id: UUID, *, tenant: int) -> MainspringError:
    """What to say to whoever wants something of a run that has no steps."""
    found = await unbegun(connection, plans, run_id, tenant=tenant)
    if found is None:
        return NotFound(f"there is no run {run_id}")
    if found.state == "queued":
        return Conflict(
            "the run has not begun: it waits for its turn (mainspring why tells for what)", code="not_begun"
        )
    words = f"the run ended before it began ({found.state}): start a new one with mainspring workflows run"
    return Conflict(words, code="already_final")


async def listed(
    connection: Connection, *, tenant: int, before: UUID, limit: int, job_id: UUID | None
) -> Sequence[wire.Run]:
    """Runs that wait for their turn, newest first."""
    rows = await runs.list_pending_runs(connection, tenant=tenant, before=before, limit=limit, job_id=job_id)
    return [_listed(r) for r in rows]


def _listed(r: Any) -> wire.Run:
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

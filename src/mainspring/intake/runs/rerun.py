"""Rerun a run: a new run that keeps what had succeeded."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict
from mainspring.domain.workflow.run import StepEnd, StepRef
from mainspring.intake.executions import Submission, insert_one
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.plans import CachedPlan
from mainspring.runs.start import start_runs
from mainspring.store import audit, dead_letters, lines, run_steps
from mainspring.store.db import Connection
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.views.runs import step_named

KEPT = ("succeeded", "skipped")
"""States that a rerun takes over from the previous run, except behind a step that it executes again."""


async def rerun(transactions: RunTransactions, run_id: UUID, request: wire.Rerun, *, tenant: int, by: str) -> wire.Run:
    """Start a new run with the same version and params; steps that succeeded before `from_step` are kept."""
    async with transactions.database.connection() as connection:
        row = await transactions.views.started_row(connection, run_id, tenant=tenant)
        if row["state"] in OPEN:
            raise Conflict("the run has not ended yet", code="still_open")
        if row["deleted_at"] is not None:
            raise Conflict(f"{row['name']} was deleted: apply it again to run it", code="workflow_deleted")
        known = await transactions.views.plan_of(
            connection, tenant=tenant, job_id=row["job_id"], version=row["version"]
        )
        refs = [StepRef(run_id, step.number) for step in known.plan.steps]
        outcomes = await run_steps.step_outcomes(connection, refs=refs)
    again = _steps_to_execute(known, {ref.step: o[0] for ref, o in outcomes.items()}, request.from_step)
    kept = {r.step: _kept(r, o, by) for r, o in outcomes.items() if r.step not in again and o[0] in KEPT}
    submission = Submission(tenant, by, row["job_id"], None, row["params"], row["fire_at"])
    async with transactions.begin() as (connection, advanced):
        letters = await dead_letters.lock_dead_letters(
            connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[run_id], limit=1)
        )
        new_id = await insert_one(connection, submission, None)
        await _refuse_if_full(connection, new_id, tenant=tenant)
        if letters:  # locked and claimed by no other user: the new run decides its outcome
            await _replace_dead_letter(connection, run_id, new_id, tenant=tenant, by=by)
        await start_runs(
            connection, transactions.plans, [new_id], rerun=(run_id, row["version"]), kept=kept, advanced=advanced
        )
        await audit.record(
            connection,
            "run.rerun",
            run_id,
            tenant=tenant,
            by=by,
            name=row["name"],
            new_run_id=str(new_id),
            from_step=request.from_step,
        )
    return await transactions.views.get(new_id, tenant=tenant)


async def _replace_dead_letter(connection: Connection, run_id: UUID, new_id: UUID, *, tenant: int, by: str) -> None:
    """The new run is the replay of the old run's dead letter; those of its steps are superseded."""
    await dead_letters.mark_replayed(connection, tenant=tenant, replayed=[(run_id, new_id)], by=by)
    await dead_letters.close_attached(
        connection, tenant=tenant, ids=[run_id], state="superseded", by=by, reason="its run was repeated"
    )


def _steps_to_execute(known: CachedPlan, states: dict[int, str], from_step: str | None) -> set[int]:
    """The steps that a rerun executes: failed ones, the named one, and all behind them."""
    ahead = [number for number, state in states.items() if state not in KEPT]
    if from_step is not None:
        ahead.append(step_named(known, from_step).number)
    if not ahead:
        raise Conflict("no step has failed: name the step to start from (--from STEP)", code="nothing_to_rerun")
    found: set[int] = set()
    while ahead:
        number = ahead.pop()
        if number not in found:
            found.add(number)
            ahead.extend(known.plan.children[number])
    return found


def _kept(ref: StepRef, outcome: tuple[str, Any, str | None], by: str) -> StepEnd:
    """A step taken over: a branch that was not taken stays skipped, and so does a step that a user skipped."""
    state, result, flag = outcome
    reason = f"kept from run {ref.run_id}"
    if state == "succeeded":
        return StepEnd(ref, state, "ok", result, reason, by, "kept")
    return StepEnd(ref, state, "ok" if flag == "skipped" else "skipped", None, reason, by, flag)


async def _refuse_if_full(connection: Connection, run_id: UUID, *, tenant: int) -> None:
    """Refuse when the concurrency key is full: a rerun starts at once. The key stays locked until it has started."""
    found = await lines.limit_of_execution(connection, tenant=tenant, execution_id=run_id)
    if found is None:
        return
    limit_id, key = found
    (limit,) = await lines.lock_limits(connection, limit_ids=[limit_id])
    if (await lines.count_holders(connection, limit_ids=[limit_id]))[limit_id] >= limit.most:
        message = f"the concurrency key {key!r} is full: {limit.most} of at most {limit.most} runs are running"
        raise Conflict(f"{message}; rerun it when one has ended", code="limit_reached")

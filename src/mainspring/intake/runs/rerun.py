"""Rerun a run: a new run that keeps what had succeeded, maybe with a failed step that a user skips or completes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict
from mainspring.domain.workflow.run import StepEnd, StepRef
from mainspring.intake.executions import Submission, insert_one
from mainspring.intake.runs.transaction import OPEN, RunTransactions
from mainspring.runs.advance import Advanced
from mainspring.runs.plans import CachedPlan
from mainspring.runs.start import start_runs
from mainspring.store import audit, dead_letters, lines, run_steps
from mainspring.store.db import Connection
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.views.runs import step_named

KEPT = ("succeeded", "skipped")
"""States that a rerun takes over from the previous run, except behind a step that it executes again."""


FAILED = ("failed", "timed_out", "lost", "cancelled")
"""States of steps that a user may free."""


@dataclass(frozen=True, slots=True)
class StepAudit:
    """The audit entry of a change to a step."""

    action: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A run that has ended, and what a new run takes over from it."""

    row: Any
    known: CachedPlan
    outcomes: dict[StepRef, tuple[str, Any, str | None]]
    deciders: dict[int, str]

    def kept(self, again: set[int], by: str) -> dict[int, StepEnd]:
        return {
            r.step: _kept(r, o, self.deciders.get(r.step, by))
            for r, o in self.outcomes.items()
            if r.step not in again and o[0] in KEPT
        }

    @property
    def states(self) -> dict[int, str]:
        return {ref.step: outcome[0] for ref, outcome in self.outcomes.items()}


async def rerun(transactions: RunTransactions, run_id: UUID, request: wire.Rerun, *, tenant: int, by: str) -> wire.Run:
    """Start a new run with the same version and params; steps that succeeded before `from_step` are kept."""
    found = await _read(transactions, run_id, tenant=tenant)
    again = _steps_to_execute(found.known, found.states, request.from_step)
    async with transactions.begin() as (connection, advanced):
        new_id = await _repeat(transactions, connection, found, found.kept(again, by), advanced, tenant=tenant, by=by)
        await audit.record(
            connection,
            "run.rerun",
            run_id,
            tenant=tenant,
            by=by,
            name=found.row["name"],
            new_run_id=str(new_id),
            from_step=request.from_step,
        )
    return await transactions.views.get(new_id, tenant=tenant)


async def rerun_freed(
    transactions: RunTransactions, freed: StepEnd, entry: StepAudit, *, step: str, was: str, tenant: int
) -> wire.Run:
    """Start a new run in which a failed step counts as `freed` says, and which continues behind it.

    The other failed steps and all behind them are executed again. The caller has checked that `entry.by` may do this.
    """
    run_id, number = freed.ref.run_id, freed.ref.step
    found = await _read(transactions, run_id, tenant=tenant)
    states = found.states
    ahead = [n for n, state in states.items() if state not in KEPT and n != number]
    ahead += [child for child in found.known.plan.children[number] if states[child] != "succeeded"]
    kept = found.kept(_all_behind(found.known, ahead) - {number}, entry.by) | {number: freed}
    async with transactions.begin() as (connection, advanced):
        new_id = await _repeat(transactions, connection, found, kept, advanced, tenant=tenant, by=entry.by, freed=freed)
        await audit.record(
            connection,
            entry.action,
            run_id,
            tenant=tenant,
            by=entry.by,
            name=f"{found.row['name']}.{step}",
            reason=entry.reason,
            step=step,
            state=was,
            new_run_id=str(new_id),
        )
    return await transactions.views.get(new_id, tenant=tenant)


async def _read(transactions: RunTransactions, run_id: UUID, *, tenant: int) -> _Repeated:
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
        deciders = await run_steps.step_deciders(connection, tenant=tenant, run_id=run_id)
    return _Repeated(row, known, outcomes, deciders)


async def _repeat(
    transactions: RunTransactions,
    connection: Connection,
    found: _Repeated,
    kept: dict[int, StepEnd],
    advanced: Advanced,
    *,
    tenant: int,
    by: str,
    freed: StepEnd | None = None,
) -> UUID:
    """Start the new run, and settle the dead letters of the old one."""
    row, run_id = found.row, found.row["run_id"]
    letters = await dead_letters.lock_dead_letters(
        connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[run_id], limit=1)
    )
    submission = Submission(tenant, by, row["job_id"], None, row["params"], row["fire_at"])
    new_id = await insert_one(connection, submission, None)
    await _refuse_if_full(connection, new_id, tenant=tenant)
    if freed is not None:
        await dead_letters.resolve_step_letters(
            connection,
            tenant=tenant,
            run_id=run_id,
            step=freed.ref.step,
            resolved_by=new_id,
            by=by,
            reason=freed.reason or "",
        )
    if letters:  # locked and claimed by no other user: the new run decides its outcome
        await _replace_dead_letter(connection, run_id, new_id, tenant=tenant, by=by)
    await start_runs(
        connection, transactions.plans, [new_id], rerun=(run_id, row["version"]), kept=kept, advanced=advanced
    )
    return new_id


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
    return _all_behind(known, ahead)


def _all_behind(known: CachedPlan, ahead: list[int]) -> set[int]:
    """These steps, and all behind them."""
    found: set[int] = set()
    while ahead:
        number = ahead.pop()
        if number not in found:
            found.add(number)
            ahead.extend(known.plan.children[number])
    return found


def _kept(ref: StepRef, outcome: tuple[str, Any, str | None], by: str) -> StepEnd:
    """A step taken over: a branch that was not taken stays skipped, and so does a step that a user skipped.

    `by` decided it: an approval remains that of who gave it, for the same version and params.
    """
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

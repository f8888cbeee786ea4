"""Starts runs: turns a claimed execution of a workflow into a run with all its steps, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.clock import millis
from mainspring.domain.duration import parse_duration
from mainspring.domain.params import given_problems
from mainspring.domain.workflow.run import (
    WHOLE,
    ClaimedRun,
    ClosedRun,
    ExecutionEnd,
    NewRun,
    NewRunStep,
    Run,
    StepEnd,
    StepRef,
)
from mainspring.runs.advance import Advanced, RunAdvance, advance, settle_run_executions
from mainspring.runs.plans import CachedPlan, PlanCache
from mainspring.store import run_steps, runs
from mainspring.store.db import Connection

MAX_DEPTH = 10
"""Levels of workflows inside workflows; a workflow that contains itself fails at this depth."""


@dataclass(slots=True)
class _Starting:
    """Runs about to be written, and claimed executions that cannot become a run, each with the reason."""

    new: list[NewRun] = field(default_factory=list)
    steps: list[NewRunStep] = field(default_factory=list)
    plans: dict[UUID, CachedPlan] = field(default_factory=dict)
    runs: dict[UUID, Run] = field(default_factory=dict)
    refused: list[tuple[ClaimedRun, str]] = field(default_factory=list)


async def start_runs(
    connection: Connection,
    plans: PlanCache,
    execution_ids: Sequence[UUID],
    *,
    rerun: tuple[UUID, int] | None = None,
    kept: Mapping[int, StepEnd] | None = None,
    advanced: Advanced | None = None,
) -> Advanced:
    """Start those of the executions that are queued.

    `rerun`: the run that is repeated, and its version. `kept`: ended steps that a rerun takes over, by number.
    """
    advanced = advanced or Advanced()
    kept = kept or {}
    starting = await _prepare(connection, plans, execution_ids, rerun)
    if starting.new:
        await runs.insert_runs(connection, new=starting.new)
        await run_steps.insert_run_steps(connection, steps=starting.steps)
        step = RunAdvance(connection, starting.runs, starting.plans)
        ended = [
            StepEnd(StepRef(run_id, number), end.state, end.weight, end.result, end.reason, end.by, end.flag)
            for run_id in starting.runs
            for number, end in kept.items()
        ]
        ready = [
            (StepRef(run_id, step.number), 0, 0, 0)
            for run_id, plan in starting.plans.items()
            for step in plan.plan.steps
            if not step.needs and step.number not in kept
        ]
        await step.start(ready, ended)
        await advance(connection, plans, await step.close(advanced), advanced)
    if starting.refused:
        await _refuse(connection, plans, starting.refused, advanced)
    return advanced


async def refuse_run(
    connection: Connection, plans: PlanCache, execution_id: UUID, reason: str, advanced: Advanced
) -> None:
    """End a queued run that cannot be started as failed."""
    claimed = await runs.claim_runs(connection, execution_ids=[execution_id])
    await _refuse(connection, plans, [(one, reason) for one in claimed], advanced)


async def _prepare(
    connection: Connection, plans: PlanCache, execution_ids: Sequence[UUID], rerun: tuple[UUID, int] | None
) -> _Starting:
    """Claim the executions and compute the rows of their runs."""
    starting = _Starting()
    for claimed in await runs.claim_runs(connection, execution_ids=execution_ids):
        version = claimed.version if rerun is None else rerun[1]
        plan = await plans.get(connection, tenant=claimed.tenant, job_id=claimed.job_id, version=version)
        if plan is None:
            starting.refused.append((claimed, f"version {version} of the workflow does not exist"))
        elif (problem := _problem(claimed, plan)) is not None:
            starting.refused.append((claimed, problem))
        else:
            starting.plans[claimed.run_id] = plan
            starting.runs[claimed.run_id] = _run(claimed, plan)
            starting.new.append(_new_run(claimed, plan, None if rerun is None else rerun[0]))
            starting.steps += _steps(claimed, plan)
    return starting


def _run(c: ClaimedRun, plan: CachedPlan) -> Run:
    return Run(c.run_id, c.tenant, c.job_id, plan.version, "running", c.params, c.fire_at, c.started_at, c.depth, None)


def _new_run(claimed: ClaimedRun, plan: CachedPlan, rerun_of: UUID | None) -> NewRun:
    spec = plan.plan.spec
    return NewRun(
        claimed,
        plan.version,
        len(plan.plan.steps),
        None if spec.timeout is None else parse_duration(spec.timeout),
        None if spec.sla is None else parse_duration(spec.sla),
        rerun_of,
    )


def _steps(claimed: ClaimedRun, plan: CachedPlan) -> list[NewRunStep]:
    started_ms = millis(claimed.started_at)
    return [
        NewRunStep(
            StepRef(claimed.run_id, step.number),
            plan.execution(claimed.run_id, started_ms, step, WHOLE) if _is_one_execution(step.spec) else None,
            len(step.needs),
            step.number in plan.plan.wanted,
        )
        for step in plan.plan.steps
    ]


def _is_one_execution(spec: object) -> bool:
    kind = getattr(spec, "kind", "")
    return kind in ("task", "workflow") and getattr(spec, "map", None) is None and getattr(spec, "repeat", None) is None


def _problem(claimed: ClaimedRun, plan: CachedPlan) -> str | None:
    """Return why a run cannot start. Parameters that one run gives to another are checked only here."""
    if not claimed.depth:
        return None
    if claimed.depth > MAX_DEPTH:
        return f"workflows contain one another more than {MAX_DEPTH} deep"
    declared, given = plan.plan.spec.params, claimed.params or {}
    if given and not declared:
        return f"{plan.plan.spec.name} has no parameters"
    problems = given_problems(declared, frozenset(), given)
    return f"{plan.plan.spec.name}: {problems[0].message}" if problems else None


async def _refuse(
    connection: Connection, plans: PlanCache, refused: Sequence[tuple[ClaimedRun, str]], advanced: Advanced
) -> None:
    """Settle executions that cannot become a run as failed, and advance the runs around them."""
    closed = [(ClosedRun(c.run_id, "failed", c.attempt, reason, 0.0, None), None) for c, reason in refused]
    await settle_run_executions(connection, closed, advanced.settled)
    ends = [ExecutionEnd(c.run_id, "failed", None, reason) for c, reason in refused if c.depth]
    await advance(connection, plans, ends, advanced)

"""Critical path, blocked steps and step timelines of runs; the grid of the last runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.workflow.layout import critical_path, slacks
from mainspring.domain.workflow.readiness import UPSTREAM, WEIGHTS
from mainspring.domain.workflow.spec import StepState
from mainspring.runs.plans import CachedPlan, PlanCache
from mainspring.store import runs
from mainspring.store.db import Database
from mainspring.views.execution_timeline import events_of
from mainspring.views.executions import get as execution_of
from mainspring.views.refs import job_row

MOST_CELLS = 200_000
MOST_RUNS = 100


def with_critical_path(run: wire.Run, known: CachedPlan, *, now: datetime) -> wire.Run:
    """Add slack and critical path to each step, and the failed steps that kept others from starting."""
    whole = {step.name: step for step in run.steps if step.item is None}
    needs = {name: step.needs for name, step in whole.items()}
    order = [known.plan.steps[number].name for number in known.plan.order]
    took = {name: _seconds(step, now) for name, step in whole.items()}
    critical, slack = set(critical_path(needs, order, took)), slacks(needs, order, took)
    blocked = blocked_by(whole, order)

    def annotated(step: wire.RunStep) -> wire.RunStep:
        if step.item is not None:
            return step
        begun = step.released_at is not None and step.flag != "kept"
        return msgspec.structs.replace(
            step,
            created_at=run.started_at,
            critical=begun and step.name in critical,
            slack_s=round(slack[step.name], 3) if begun else None,
            blocked_by=blocked[step.name],
        )

    return msgspec.structs.replace(
        run,
        steps=[annotated(step) for step in run.steps],
        blocked=[name for name in order if blocked[name]],
        failed=[name for name in order if WEIGHTS.get(whole[name].state) == "failed"],
    )


def blocked_by(steps: Mapping[str, wire.RunStep], order: Sequence[str]) -> dict[str, list[str]]:
    """For each step that did not start because of a failure upstream: the steps that failed."""
    found: dict[str, list[str]] = {}
    for name in order:
        step, causes = steps[name], dict[str, None]()
        if step.state == "skipped" and step.flag is None and step.reason in UPSTREAM:
            for need in step.needs:
                failed = WEIGHTS.get(steps[need].state) == "failed"
                causes.update(dict.fromkeys([need] if failed else found[need]))
        found[name] = list(causes)
    return found


def _seconds(step: wire.RunStep, now: datetime) -> float:
    if step.released_at is None or step.flag == "kept":
        return 0.0
    return max(0.0, ((step.finished_at or now) - step.released_at).total_seconds())


async def step_timeline(
    database: Database, mine: Sequence[wire.RunStep], *, tenant: int, item: int | None = None
) -> wire.StepTimeline:
    """The events of a step, or of one of its items, from the start of the run."""
    step = next((step for step in mine if step.item == item), None)
    if step is None:
        raise NotFound(f"the step {mine[0].name!r} has no item {item}")
    events: list[wire.LifecycleEvent] = []
    if step.execution_id is not None:
        execution = await execution_of(database, step.execution_id, tenant=tenant)
        events = [event for event in events_of(execution) if event.event not in ("execution.created", "execution.due")]
    own: list[tuple[str, datetime | None, str | None]] = [
        ("created", step.created_at, None),
        ("waiting" if step.kind in ("approval", "event", "wait") else "released", step.released_at, _until(step)),
        (step.state if step.finished_at is not None else "", step.finished_at, step.reason),
    ]
    events += [
        wire.LifecycleEvent(event=f"step.{word}", at=at, text=text) for word, at, text in own if at is not None and word
    ]
    # Order at equal instants: created and released, then the execution's events, then the end of the step.
    last = f"step.{step.state}"
    events.sort(key=lambda e: (e.at, e.event == last, not e.event.startswith("step.")))
    return wire.StepTimeline(step=step, items=[s for s in mine if s.item is not None and item is None], events=events)


def _until(step: wire.RunStep) -> str | None:
    return f"until {step.wake_at:%Y-%m-%d %H:%M:%S} UTC" if step.wake_at is not None else None


async def grid(database: Database, plans: PlanCache, ref: str, *, tenant: int, count: int = 25) -> wire.Grid:
    """The last runs of a workflow, newest first, with the state of each step."""
    if not 1 <= count <= MOST_RUNS:
        raise invalid("/runs", f"{count} is out of range", hint=f"between 1 and {MOST_RUNS}")
    row = await job_row(database, ref, tenant=tenant)
    async with database.connection() as connection:
        latest = await plans.get(connection, tenant=tenant, job_id=row.job_id, version=row.version)
        if latest is None:
            raise NotFound(f"there is no workflow {ref!r}")
        count = max(1, min(count, MOST_CELLS // len(latest.plan.steps)))
        found = await runs.grid_of_runs(connection, tenant=tenant, job_id=row.job_id, limit=count)
        names: dict[str, None] = dict.fromkeys(latest.plan.steps[number].name for number in latest.plan.order)
        states: dict[UUID, dict[str, StepState]] = {}
        for r in found:
            known = await plans.get(connection, tenant=tenant, job_id=row.job_id, version=r["version"])
            assert known is not None, "a run points to its version"
            mine = (step.name for step in known.plan.steps)
            states[r["run_id"]] = dict(zip(mine, r["states"] or (), strict=True))
            names.update(dict.fromkeys(states[r["run_id"]]))
    return wire.Grid(
        workflow=row.name,
        steps=list(names),
        runs=[
            wire.GridRun(
                run_id=r["run_id"],
                state=r["state"],
                version=r["version"],
                fire_at=r["fire_at"],
                started_at=r["started_at"],
                finished_at=r["finished_at"],
                steps=[states[r["run_id"]].get(name) for name in names],
            )
            for r in found
        ],
    )

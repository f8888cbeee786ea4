"""Messages of approval steps, with the parameters and results that their templates name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from mainspring.domain.params import defaults
from mainspring.domain.workflow import inputs
from mainspring.domain.workflow.run import StepRef
from mainspring.runs.plans import CachedPlan
from mainspring.store import run_steps
from mainspring.store.db import Connection


async def approval_messages(
    connection: Connection, known: CachedPlan, run: Any, numbers: Iterable[int]
) -> dict[int, str]:
    """The message of each approval among these steps, by number. `run`: the row of a run whose tenant was checked."""
    plan = known.plan
    given = {n: step.spec.approval.message for n in numbers if (step := plan.steps[n]).spec.approval is not None}
    run_id: UUID = run["run_id"]
    named = {name for text in given.values() for name in inputs.steps_in(text)}
    refs = [StepRef(run_id, plan.by_name[name]) for name in sorted(named) if name in plan.by_name]
    outcomes = await run_steps.step_outcomes(connection, refs=refs) if refs else {}
    values = {
        "run_id": str(run_id),
        "params": defaults(plan.spec.params) | (run["params"] or {}),
        "fire_at": run["fire_at"].isoformat().replace("+00:00", "Z"),
        "steps": {plan.steps[r.step].name: {"state": o[0], "result": o[1]} for r, o in outcomes.items()},
    }
    return {n: inputs.rendered(text, {**values, "step": plan.steps[n].name}) for n, text in given.items() if text}

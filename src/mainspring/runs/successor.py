"""Fast path for a step with a single successor: both are settled and released by one statement.

Most steps of most workflows have one step behind them that needs nothing else. The process that released such a step
already knows its successor. The statement checks every assumption, so a stale entry changes nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring.domain.settlement import Successor
from mainspring.domain.workflow.condition import is_cheap
from mainspring.domain.workflow.plan import Plan
from mainspring.domain.workflow.readiness import Parents, verdict
from mainspring.domain.workflow.run import WHOLE, Run, StepRef
from mainspring.runs.plans import CachedPlan
from mainspring.runs.release import StepStarts, values_of

MAX_ENTRIES = 10_000
"""Steps that end on another process are never looked up here, so the oldest entries are evicted."""


class SuccessorCache:
    """Runs as they were when one of their steps was released, by the execution of that step."""

    def __init__(self) -> None:
        self._entries: dict[UUID, tuple[Run, CachedPlan, int]] = {}

    def add(self, execution_id: UUID, run: Run, plan: CachedPlan, ref: StepRef) -> None:
        """Add a released step, if it has a single successor."""
        if ref.item != WHOLE or single_successor(plan.plan, ref.step) is None or run.cancelling:
            return
        self._entries[execution_id] = (run, plan, ref.step)
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def pop(self, execution_id: UUID, result: Any) -> tuple[Successor, Run, CachedPlan] | None:
        """Return the successor of a step that succeeded, if it is known and starts unconditionally."""
        if (found := self._entries.pop(execution_id, None)) is None:
            return None
        run, plan, number = found
        step = plan.plan.steps[single_successor(plan.plan, number) or 0]
        starts = StepStarts()
        values = values_of(run, plan, step, {(run.run_id, number): ("succeeded", result, None)})
        if step.spec.when is not None and not is_cheap(step.spec.when, values):
            return None
        if starts.start(run, plan, step, values, {}) is not None or len(starts.releases) != 1:
            return None
        return Successor(run.run_id, number, step.number, starts.releases[0].params), run, plan


def single_successor(plan: Plan, number: int) -> int | None:
    """Return the only step behind another, if it is a task that needs and reads nothing else."""
    children = plan.children[number]
    if len(children) != 1 or (step := plan.steps[children[0]]).needs != (number,) or not step.reads <= {number}:
        return None
    spec = step.spec
    simple = spec.workflow is None and spec.map is None and spec.repeat is None
    if not simple or spec.approval is not None or spec.event is not None or spec.waits is not None:
        return None
    return step.number if verdict(spec, Parents(ok=1), cancelling=False)[0] == "go" else None

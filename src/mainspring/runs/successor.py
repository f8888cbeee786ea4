"""Steps that were released here, and what their success leads to when nothing is left to decide.

Most steps of most workflows have one behind them that needs nothing else. Who released such a step knows already what
follows: its end and the next beginning are one statement, and the tables have the last word, as ever.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring.domain.workflow.plan import Plan
from mainspring.domain.workflow.readiness import Parents, verdict
from mainspring.runs.plans import Known
from mainspring.runs.release import Beginning, values_of
from mainspring.store.results import Link
from mainspring.store.runs import WHOLE, Place, Run

MOST = 10_000
"""Of those whose end came elsewhere nothing is heard, so the oldest are forgotten."""


class Links:
    """By the execution of a step: its run, as it was when the step was released."""

    def __init__(self) -> None:
        self._known: dict[UUID, tuple[Run, Known, int]] = {}

    def remember(self, execution_id: UUID, run: Run, known: Known, place: Place) -> None:
        if place.item != WHOLE or follower(known.plan, place.step) is None or run.cancelling:
            return
        self._known[execution_id] = (run, known, place.step)
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def after(self, execution_id: UUID, result: Any) -> tuple[Link, Run, Known] | None:
        """What follows the success of an execution, if it is one of these and there is nothing to decide."""
        if (found := self._known.pop(execution_id, None)) is None:
            return None
        run, known, number = found
        step = known.plan.steps[follower(known.plan, number) or 0]
        begun = Beginning()
        values = values_of(run, known, step, {(run.run_id, number): ("succeeded", result, None)})
        if begun.begin(run, known, step, values) is not None or len(begun.releases) != 1:
            return None
        return Link(run.run_id, number, step.number, begun.releases[0].params), run, known


def follower(plan: Plan, number: int) -> int | None:
    """The one step behind another, if it is a task that needs and reads nothing else."""
    behind = plan.children[number]
    if len(behind) != 1 or (step := plan.steps[behind[0]]).needs != (number,) or not step.reads <= {number}:
        return None
    spec = step.spec
    simple = spec.workflow is None and spec.map is None and spec.repeat is None
    if not simple or spec.approval is not None or spec.event is not None or spec.waits is not None:
        return None
    return step.number if verdict(spec, Parents(ok=1), cancelling=False)[0] == "go" else None

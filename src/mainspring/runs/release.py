"""What a ready step becomes: an execution, several executions, or a wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.clock import millis
from mainspring.domain.duration import optional_seconds
from mainspring.domain.params import defaults
from mainspring.domain.template import TooMuchInserted
from mainspring.domain.workflow.condition import ConditionError
from mainspring.domain.workflow.inputs import resolved
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.run import ItemGroup, NewRunStep, Run, StepEnd, StepRef, StepRelease
from mainspring.domain.workflow.spec import MOST_ITEMS
from mainspring.domain.workflow.wait import WaitError, end_of
from mainspring.runs.expressions import Evaluated, holds, value_of
from mainspring.runs.plans import CachedPlan

MAX_INSERTED_CHARS = 32_000_000
"""How much the params of all steps that start together may have, so that one statement can write them."""

StepOutcome = tuple[str, Any, str | None]
"""State, result and flag of a step."""


class StepStarts:
    """Steps that start in one round, collected so that each kind is written by one statement."""

    def __init__(self) -> None:
        self.releases: list[StepRelease] = []
        self.items: list[NewRunStep] = []
        self.groups: list[ItemGroup] = []
        self.waits: list[tuple[StepRef, float | None, datetime | None]] = []
        self.events: list[tuple[StepRef, str, float | None]] = []
        self._inserted = 0

    def start(
        self, run: Run, plan: CachedPlan, step: PlanStep, values: dict[str, Any], evaluated: Evaluated
    ) -> StepEnd | None:
        """Start a ready step; return its end if it ends at once. `evaluated` has the values of costly expressions."""
        ref, spec = StepRef(run.run_id, step.number), step.spec
        try:
            if spec.when is not None and not holds(spec.when, values, evaluated):
                return StepEnd(ref, "skipped", "skipped", reason=f"its condition is false: {spec.when}")
            if spec.approval is not None:
                self.waits.append((ref, optional_seconds(spec.approval.expires), None))
            elif spec.event is not None:
                self.events.append((ref, spec.event.name, optional_seconds(spec.event.timeout)))
            elif spec.waits is not None:
                self.waits.append((ref, *end_of(spec.waits, values)))
            elif spec.map is not None:
                return self._map(run, plan, step, values, evaluated)
            elif spec.repeat is not None:
                self.repeat(run, plan, step, values, 0)
            else:
                self.releases.append(StepRelease(ref, self._params(step, values), spec.workflow))
        except (ConditionError, WaitError) as error:
            return StepEnd(ref, "failed", "failed", reason=str(error))
        except KeyError as error:
            return StepEnd(ref, "failed", "failed", reason=missing_value(error))
        return None

    def _map(
        self, run: Run, plan: CachedPlan, step: PlanStep, values: dict[str, Any], evaluated: Evaluated
    ) -> StepEnd | None:
        ref, spec = StepRef(run.run_id, step.number), step.spec
        assert spec.map is not None
        found = value_of(spec.map, values, evaluated)
        if not isinstance(found, list):
            return StepEnd(
                ref, "failed", "failed", reason=f"{spec.map!r} is not a list, so there is nothing to map over"
            )
        if len(found) > MOST_ITEMS:
            reason = f"{spec.map!r} has {len(found):,} items; at most {MOST_ITEMS:,} are mapped over"
            return StepEnd(ref, "failed", "failed", reason=reason)
        if not found:
            return StepEnd(ref, "succeeded", "ok", result=[])
        first = min(len(found), spec.max_parallel or MOST_ITEMS)
        # First what may fail: a step that fails here has no items.
        releases = [self.item(run, step, number, found[number], values) for number in range(first)]
        for number, value in enumerate(found):
            item = StepRef(run.run_id, step.number, number)
            execution = plan.execution(run.run_id, millis(run.started_at), step, number)
            self.items.append(NewRunStep(item, execution, 0, True, value))
        self.releases += releases
        self.groups.append(ItemGroup(ref, len(found), len(found), 0, first))
        return None

    def item(self, run: Run, step: PlanStep, number: int, value: Any, values: dict[str, Any]) -> StepRelease:
        """The release of one item of a mapped step; a KeyError names a value that its templates lack."""
        own = {**values, "item": value, "item_index": number}
        ref = StepRef(run.run_id, step.number, number)
        return StepRelease(ref, self._params(step, own), step.spec.workflow)

    def _params(self, step: PlanStep, values: Mapping[str, Any]) -> dict[str, Any] | None:
        if not step.inputs:
            return None
        found, inserted = resolved(step.inputs, values)
        _check_inserted(self._inserted + inserted)
        self._inserted += inserted
        return found

    def repeat(self, run: Run, plan: CachedPlan, step: PlanStep, values: dict[str, Any], number: int) -> None:
        """Release the next iteration of a repeated step."""
        repeat = step.spec.repeat
        assert repeat is not None
        ref = StepRef(run.run_id, step.number, number)
        own = {"result": None, **values, "iteration": number}
        execution = plan.execution(run.run_id, millis(run.started_at), step, number)
        self.items.append(NewRunStep(ref, execution, 0, True))
        delay_s = optional_seconds(repeat.delay) if number else None
        self.releases.append(StepRelease(ref, self._params(step, own), step.spec.workflow, delay_s))
        self.groups.append(ItemGroup(StepRef(run.run_id, step.number), number + 1, 1, 0, number + 1))


def _check_inserted(inserted: int) -> None:
    if inserted > MAX_INSERTED_CHARS:
        message = f"steps that start together insert more than {MAX_INSERTED_CHARS:,} characters of results"
        raise TooMuchInserted(f"{message}; pass a reference instead, or set max_parallel")


def values_of(
    run: Run, plan: CachedPlan, step: PlanStep | None, outcomes: Mapping[tuple[UUID, int], StepOutcome]
) -> dict[str, Any]:
    """Return the values that expressions and templates of a step may name; without a step, those of the outputs."""
    compiled = plan.plan
    values: dict[str, Any] = {
        "run_id": str(run.run_id),
        "params": defaults(compiled.spec.params) | (run.params or {}),
        "fire_at": run.fire_at.isoformat().replace("+00:00", "Z"),
    }
    numbers = compiled.wanted if step is None else step.reads
    found = {number: outcomes[run.run_id, number] for number in numbers if (run.run_id, number) in outcomes}
    values["steps"] = {compiled.steps[n].name: {"state": o[0], "result": o[1]} for n, o in found.items()}
    if step is not None:
        values["step"] = step.name
        values["upstream"] = {compiled.steps[n].name: found[n][2] or found[n][0] for n in step.needs if n in found}
    return values


def missing_value(error: KeyError) -> str:
    """Return why a step fails whose templates cannot be filled in."""
    if isinstance(error, TooMuchInserted):
        return str(error.args[0])
    return f"{error.args[0]} does not exist: no earlier step returned such a result"

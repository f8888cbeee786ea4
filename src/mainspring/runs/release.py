"""What a step does when its turn has come: become an execution, several, or wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.clock import millis
from mainspring.domain.duration import parse_duration
from mainspring.domain.params import defaults
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.condition import NotTrue
from mainspring.domain.workflow.inputs import resolved
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.spec import MOST_ITEMS
from mainspring.domain.workflow.wait import NoTime, end_of
from mainspring.runs.plans import Known
from mainspring.store.runs import Finish, Group, NewStep, Place, Release, Run

Outcome = tuple[str, Any, str | None]
"""State, result and flag of a step."""


class Beginning:
    """Everything that begins in one turn, gathered so that each kind is written in one statement."""

    def __init__(self) -> None:
        self.releases: list[Release] = []
        self.items: list[NewStep] = []
        self.groups: list[Group] = []
        self.waits: list[tuple[Place, float | None, datetime | None]] = []
        self.events: list[tuple[Place, str, float | None]] = []

    def begin(self, run: Run, known: Known, step: PlanStep, values: dict[str, Any]) -> Finish | None:
        """Starts a step that may start; returns its end if it has ended already."""
        place, spec = Place(run.run_id, step.number), step.spec
        try:
            if spec.when is not None and not condition.holds(spec.when, values):
                return Finish(place, "skipped", "skipped", reason=f"its condition is false: {spec.when}")
            if spec.approval is not None:
                self.waits.append((place, _seconds(spec.approval.expires), None))
            elif spec.event is not None:
                self.events.append((place, spec.event.name, _seconds(spec.event.timeout)))
            elif spec.waits is not None:
                self.waits.append((place, *end_of(spec.waits, values)))
            elif spec.map is not None:
                return self._map(run, known, step, values)
            elif spec.repeat is not None:
                self.repeat(run, known, step, values, 0)
            else:
                self.releases.append(Release(place, _params(step, values), spec.workflow))
        except (NotTrue, NoTime) as error:
            return Finish(place, "failed", "failed", reason=str(error))
        except KeyError as error:
            return Finish(place, "failed", "failed", reason=_missing(error))
        return None

    def _map(self, run: Run, known: Known, step: PlanStep, values: dict[str, Any]) -> Finish | None:
        place, spec = Place(run.run_id, step.number), step.spec
        assert spec.map is not None
        found = condition.evaluate(spec.map, values)
        if not isinstance(found, list):
            return Finish(
                place, "failed", "failed", reason=f"{spec.map!r} is not a list, so there is nothing to map over"
            )
        if len(found) > MOST_ITEMS:
            reason = f"{spec.map!r} has {len(found):,} items; at most {MOST_ITEMS:,} are mapped over"
            return Finish(place, "failed", "failed", reason=reason)
        if not found:
            return Finish(place, "succeeded", "ok", result=[])
        first = min(len(found), spec.max_parallel or MOST_ITEMS)
        for number, value in enumerate(found):
            item = Place(run.run_id, step.number, number)
            execution = known.execution(run.run_id, millis(run.started_at), step, number)
            self.items.append(NewStep(item, execution, 0, True, value))
        for number in range(first):
            self.release_item(run, step, number, found[number], values)
        self.groups.append(Group(place, len(found), len(found), 0, first))
        return None

    def release_item(self, run: Run, step: PlanStep, number: int, value: Any, values: dict[str, Any]) -> None:
        own = {**values, "item": value, "item_index": number}
        place = Place(run.run_id, step.number, number)
        self.releases.append(Release(place, _params(step, own), step.spec.workflow))

    def repeat(self, run: Run, known: Known, step: PlanStep, values: dict[str, Any], number: int) -> None:
        """The next iteration of a repeated step."""
        repeat = step.spec.repeat
        assert repeat is not None
        place = Place(run.run_id, step.number, number)
        own = {"result": None, **values, "iteration": number}
        execution = known.execution(run.run_id, millis(run.started_at), step, number)
        self.items.append(NewStep(place, execution, 0, True))
        delay_s = _seconds(repeat.delay) if number else None
        self.releases.append(Release(place, _params(step, own), step.spec.workflow, delay_s))
        self.groups.append(Group(Place(run.run_id, step.number), number + 1, 1, 0, number + 1))


def values_of(
    run: Run, known: Known, step: PlanStep | None, outcomes: Mapping[tuple[UUID, int], Outcome]
) -> dict[str, Any]:
    """What expressions and templates of a step may name."""
    plan = known.plan
    values: dict[str, Any] = {
        "run_id": str(run.run_id),
        "params": defaults(plan.spec.params) | (run.params or {}),
        "fire_at": run.fire_at.isoformat().replace("+00:00", "Z"),
    }
    numbers = plan.wanted if step is None else step.reads
    found = {number: outcomes[run.run_id, number] for number in numbers if (run.run_id, number) in outcomes}
    values["steps"] = {plan.steps[n].name: {"state": o[0], "result": o[1]} for n, o in found.items()}
    if step is not None:
        values["step"] = step.name
        values["upstream"] = {plan.steps[n].name: found[n][2] or found[n][0] for n in step.needs if n in found}
    return values


def _params(step: PlanStep, values: Mapping[str, Any]) -> dict[str, Any] | None:
    return resolved(step.inputs, values) if step.inputs else None


def _seconds(duration: str | int | float | None) -> float | None:
    return None if duration is None else parse_duration(duration)


def _missing(error: KeyError) -> str:
    return f"{error.args[0]} is not there: a step before it gave no such result"

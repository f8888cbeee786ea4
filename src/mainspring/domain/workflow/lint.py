"""Finds step fields that have no effect or can only fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mainspring.domain.errors import Problem
from mainspring.domain.template import places, templates
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.spec import Step, WorkflowSpec

_OF_TASKS = (
    "queue", "priority", "timeout", "retries", "delivery", "estimated_duration", "labels", "resources", "exclusive",
    "concurrency", "rate",
)  # fmt: skip
_INSTEAD = {("approval", "timeout"): "write approval: {expires: …}", ("event", "timeout"): "write event: {timeout: …}"}


def lint_step(at: str, step: Step, spec: WorkflowSpec) -> Iterator[Problem]:
    """Return problems of a valid step whose fields have no effect or always fail."""
    if not step.kinds:
        return
    if step.kind not in ("task", "workflow"):
        defaults = Step()
        for field in _OF_TASKS:
            if getattr(step, field) != getattr(defaults, field):
                hint = _INSTEAD.get((step.kind, field), "remove it")
                yield Problem(f"{at}/{field}", f"{field} belongs to a task step, and this is {step.kind}", hint)
    if step.workflow == spec.name and step.when is None:
        hint = "give the step a condition (when) that ends it, or remove it"
        yield Problem(f"{at}/workflow", f"a cycle: {spec.name} → {spec.name}", hint)
    named = set(_names([msgspec.to_builtins(step.task), step.params]))
    if step.map is None and named & {"item", "item_index"}:
        yield Problem(at, "{{item}} needs a step with map", "add map: <a list>")
    if step.repeat is None and "iteration" in named:
        yield Problem(at, "{{iteration}} needs a step with repeat", "add repeat: {until: …, max: …}")
    if step.map is not None:
        yield from _map_problems(f"{at}/map", step.map, spec)
    if step.when is not None and (found := _constant(step.when)) and not isinstance(found[0], bool):
        yield Problem(f"{at}/when", f"{step.when!r} is not a boolean", "such as steps.extract.result.rows > 0")


def _map_problems(pointer: str, text: str, spec: WorkflowSpec) -> Iterator[Problem]:
    hint = "such as steps.extract.result.parts, or ['a', 'b']"
    found = _constant(text)
    if found and not isinstance(found[0], list):
        yield Problem(pointer, f"{text!r} is not a list", hint)
    name = text.strip().removeprefix("params.")
    if text.strip() == f"params.{name}" and name in spec.params and spec.params[name].type not in (None, "array"):
        yield Problem(pointer, f"the parameter {name!r} is not a list: its type is {spec.params[name].type}", hint)


def _names(value: Any) -> Iterator[str]:
    """The first path segment of each template name."""
    for _, text in templates(value, ""):
        for name in places(text):
            yield name.partition(".")[0]


def _constant(text: str) -> list[Any]:
    """The value of a constant expression, or None."""
    try:
        if condition.reads_anything(text) or not condition.is_cheap(text, {}):
            return []
        return [condition.evaluate(text, {})]
    except condition.ConditionError:
        return []

"""Step inputs: `{{steps.extract.result.path}}`, `{{params.day}}`, `{{item}}`.

When a workflow is saved, references to the run in its tasks become *inputs* of each step. When a step is released, its
inputs are resolved and passed as the params of its execution. Workers see ordinary params and know no workflows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from mainspring.domain.errors import clipped
from mainspring.domain.job import NoopTask, Task, WorkflowTask
from mainspring.domain.task import PythonTask
from mainspring.domain.template import (
    MAX_NAME_CHARS,
    NAMES,
    BoundedValues,
    fill,
    is_secret,
    places,
    renamed,
    strings,
    substituted,
    templates,
)

_PATH = re.compile(
    r"(?:steps\.(?P<step>[A-Za-z_]\w*)\.(?:state|result(?:\.\w+)*)|params\.[A-Za-z_]\w*|upstream(?:\.[A-Za-z_]\w*)?"
    r"|item(?:\.\w+)*|run_id|step|item_index|iteration)\Z"
)
MISSING = "–"
MAX_TEXT_CHARS = 2000
"""How much of a text with inserted values is shown."""


def inputs_of(task: Task) -> tuple[Task, dict[str, Any]]:
    """Return the task for workers and its inputs: params by name, each a template over the run."""
    if isinstance(task, NoopTask | WorkflowTask):
        return task, {}
    if isinstance(task, PythonTask):
        # A function receives arguments, not text: values from the run are passed as params, which override `args`.
        moved = {name: value for name, value in task.args.items() if any(_run_places(value))}
        fixed = {name: value for name, value in task.args.items() if name not in moved}
        return msgspec.structs.replace(task, args=fixed), moved
    if b"{{" not in msgspec.json.encode(task):
        return task, {}
    found: dict[str, Any] = {}

    def as_param(name: str) -> str:
        if not _is_run_name(name):
            return name
        param = name.removeprefix("params.").replace(".", "_")
        while found.get(param, _place(name)) != _place(name):
            param += "_"
        found[param] = _place(name)
        return f"params.{param}"

    values = _rewritten(msgspec.to_builtins(task), as_param)
    return msgspec.convert(values, type(task)), found


def wrong_names(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Unknown names inside a JSON value, with JSON pointers."""
    for place, text in templates(value, pointer):
        for name in places(text):
            if not _PATH.match(name) and name not in NAMES and not is_secret(name):
                yield str(place), clipped(name, MAX_NAME_CHARS)


def steps_in(value: Any) -> set[str]:
    """The steps whose outcome the templates of a JSON value read."""
    found = set()
    for _, text in templates(value, ""):
        for name in places(text):
            if (match := _PATH.match(name)) is not None and match["step"]:
                found.add(match["step"])
    return found


def reads_upstream(value: Any) -> bool:
    """Whether the value reads `upstream`, the outcomes of the needed steps."""
    # The encoded text first: it takes a hundredth of the time of a walk through the values.
    return b"upstream" in msgspec.json.encode(value) and any("upstream" in text for _, text in strings(value, ""))


def params_in(value: Any) -> set[str]:
    named = (name for _, text in templates(value, "") for name in places(text))
    return {name.removeprefix("params.") for name in named if name.startswith("params.")}


class RunValues(Mapping[str, Any]):
    """The values that templates of a run can refer to, by path."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        value: Any = self._values
        for part in name.split("."):
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list) and _is_index(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def resolved(inputs: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Resolve the params of one execution; return also how many characters were inserted.

    A KeyError names the missing value.
    """
    known = BoundedValues(RunValues(values))
    found = {name: fill(template, known) for name, template in inputs.items()}
    return found, known.inserted


def rendered(text: str, values: Mapping[str, Any]) -> str:
    """Insert values of a run into a text for readers; one that does not exist yet is shown as a dash."""
    known = BoundedValues(RunValues(values))

    def value(name: str) -> str:
        try:
            found = known[name]
        except KeyError:
            return MISSING
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    return clipped(substituted(text, value), MAX_TEXT_CHARS)


def _run_places(value: Any) -> Iterator[str]:
    return (name for _, text in templates(value, "") for name in places(text) if _is_run_name(name))


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdecimal() and len(part) < 10


def _is_run_name(name: str) -> bool:
    return _PATH.match(name) is not None


def _place(name: str) -> str:
    return "{{" + name + "}}"


def _rewritten(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return renamed(value, rename)
    if isinstance(value, dict):
        return {key: _rewritten(item, rename) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rewritten(item, rename) for item in value]
    return value

"""Short forms of tasks in manifests: `shell: [echo, hi]` for `task: {kind: shell, argv: [echo, hi]}`."""

from __future__ import annotations

from typing import Any

from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.suggestion import closest

SHORT_FORMS = {
    "shell": 'write its words as a list: [sh, -c, "echo hi | wc"]',
    "http": 'write {url: "https://…", method: POST}',
    "python": 'write the name of the function: "app.etl:extract"',
    "container": 'write {image: "etl:3", args: [load]}',
}
"""Each with a hint on how to write it."""
_KINDS = {str: "a string", list: "a list", dict: "a mapping", int: "a number", float: "a number", type(None): "empty"}


def expanded(at: str, definition: Any, fields: frozenset[str]) -> Any:
    """Expand the short form of a task. `fields` are those of the definition, a job or a step."""
    if not isinstance(definition, dict):
        return definition
    if not (short := [kind for kind in SHORT_FORMS if kind in definition]):
        for field in definition.keys() - fields:
            if (close := closest(field, SHORT_FORMS)) and closest(field, fields) is None:
                raise _invalid(f"{at}/{field}", f"unknown field {field!r}", f"did you mean {close!r}?")
        return definition
    if len(short) > 1 or "task" in definition:
        both = " and ".join([*short, *(["task"] if "task" in definition else [])])
        raise _invalid(f"{at}/{short[0]}", f"{both} exclude each other", "write one of them")
    kind, value = short[0], definition[short[0]]
    rest = {key: item for key, item in definition.items() if key != kind}
    if kind in ("http", "container") and isinstance(value, dict):
        return {"task": {"kind": kind, **value}, **rest}
    if kind == "shell" and isinstance(value, list):
        return {"task": {"kind": kind, "argv": value}, **rest}
    if kind == "python" and isinstance(value, str):
        args = rest.pop("args", None)
        return {"task": {"kind": kind, "function": value, **({"args": args} if args else {})}, **rest}
    message = f"{kind} cannot be {_KINDS.get(type(value), 'a value of this type')}"
    raise _invalid(f"{at}/{kind}", message, SHORT_FORMS[kind])


def abbreviated(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition, whose task has no fields with defaults, with the short form of its task if it has one."""
    task = definition.get("task")
    if task is None:
        return definition
    rest = {key: value for key, value in definition.items() if key != "task"}
    if task["kind"] == "shell" and task.keys() == {"kind", "argv"}:
        return {"shell": task["argv"], **rest}
    if task["kind"] == "python" and task.keys() <= {"kind", "function", "args"}:
        return {"python": task["function"], **({"args": task["args"]} if task.get("args") else {}), **rest}
    return definition


def _invalid(pointer: str, message: str, hint: str) -> Invalid:
    return Invalid(message, problems=(Problem(pointer, message, hint),))

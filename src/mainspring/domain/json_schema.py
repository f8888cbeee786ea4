"""Validates values against a bounded subset of JSON Schema.

Schemas come from workers. Unknown keywords, regular expressions and references to other documents are therefore
refused instead of ignored.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from mainspring.domain.errors import MAX_PROBLEMS, Problem, clipped
from mainspring.domain.template import Path

CHECKS = frozenset((
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "anyOf", "$ref", "$defs",
))  # fmt: skip
NOTES = frozenset(("title", "description", "default", "examples", "$schema", "$comment", "format", "deprecated"))
MOST_DEPTH = 32
MOST_SCHEMA_PARTS = 2_000
"""Schemas inside one schema."""
MOST_ENUM = 1_000
MOST_STEPS = 20_000
"""Checks of one value. Choices inside choices multiply, and a schema may refer to itself."""
_REF = "#/$defs/"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


_NUMBERS = ("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
            "exclusiveMaximum")  # fmt: skip
_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", operator.lt, "at least"),
    ("maximum", operator.gt, "at most"),
    ("exclusiveMinimum", operator.le, "more than"),
    ("exclusiveMaximum", operator.ge, "less than"),
)


class TooManySteps(Exception):
    """A value takes more checks than are allowed."""


class _Steps:
    """The remaining checks of one value."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_STEPS) -> None:
        self.left = left

    def take(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooManySteps


def schema_problem(schema: Any) -> str | None:
    """Return why a schema is unsupported, or None."""
    try:
        return _schema_problem(schema, 0, _Steps(MOST_SCHEMA_PARTS))
    except TooManySteps:
        return f"it has more than {MOST_SCHEMA_PARTS:,} parts"


def _schema_problem(schema: Any, depth: int, steps: _Steps) -> str | None:
    steps.take()
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict) or depth > MOST_DEPTH:
        return "a schema is an object, at most 32 levels deep"
    for word in schema:
        if word not in CHECKS and word not in NOTES:
            return f"{clipped(word, 100)!r} is not supported; use {', '.join(sorted(CHECKS))}"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in _TYPES:
            return f"{_short(kind)} is not a type"
    if "$ref" in schema and not (isinstance(schema["$ref"], str) and schema["$ref"].startswith(_REF)):
        return f"$ref {_short(schema['$ref'])} refers to another document; use {_REF}NAME"
    for word in _NUMBERS:
        if word in schema and (isinstance(schema[word], bool) or not isinstance(schema[word], int | float)):
            return f"{word} has the wrong shape"
    inner: list[Any] = [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for word, shape in (("properties", dict), ("$defs", dict), ("anyOf", list), ("required", list), ("enum", list)):
        if not isinstance(schema.get(word, shape()), shape):
            return f"{word} has the wrong shape"
    if len(schema.get("enum", ())) > MOST_ENUM or len(schema.get("required", ())) > MOST_ENUM:
        return f"enum and required have at most {MOST_ENUM:,} members"
    if not all(isinstance(name, str) for name in schema.get("required", ())):
        return "required has the wrong shape"
    inner += [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    return next((wrong for one in inner if (wrong := _schema_problem(one, depth + 1, steps))), None)


def problems(value: Any, schema: Any, pointer: str, *, templates: bool = False) -> Iterator[Problem]:
    """Return the problems of a value. With `templates`, a string with a template may become any type."""
    root = schema if isinstance(schema, dict) else {}
    check = _Check(root, templates, _Steps())
    try:
        yield from islice(check.problems(value, schema, Path(pointer), 0), MAX_PROBLEMS)
    except TooManySteps:
        message = f"the value takes more than {MOST_STEPS:,} checks against its schema"
        yield Problem(pointer, message, "shorten it, or simplify the schema")


class _Check:
    """The check of one value: the schema that references name, and the steps that are left."""

    def __init__(self, root: dict[str, Any], templates: bool, steps: _Steps) -> None:
        self._root = root
        self._templates = templates
        self._steps = steps

    def problems(self, value: Any, schema: Any, at: Path, depth: int) -> Iterator[Problem]:
        self._steps.take()
        if schema is True or (self._templates and isinstance(value, str) and "{{" in value):
            return
        if schema is False or depth > MOST_DEPTH:
            yield Problem(str(at), "nothing is expected here", "remove it")
            return
        if (ref := schema.get("$ref")) is not None:
            target = self._root.get("$defs", {}).get(str(ref).removeprefix(_REF), False)
            yield from self.problems(value, target, at, depth + 1)
        kinds = schema.get("type")
        if kinds is not None and not any(_is(value, kind) for kind in (kinds if isinstance(kinds, list) else [kinds])):
            yield Problem(str(at), f"{_short(value)} is not of type {_list(kinds)}", f"give {_list(kinds)}")
            return
        if "enum" in schema:
            self._steps.take(len(schema["enum"]))
            if not any(_same(value, one) for one in schema["enum"]):
                yield Problem(str(at), f"{_short(value)} is not one of the values", f"one of {_short(schema['enum'])}")
        if "const" in schema and not _same(value, schema["const"]):
            yield Problem(str(at), f"{_short(value)} is not {_short(schema['const'])}", "give exactly that")
        if any_of := schema.get("anyOf"):
            found = [list(islice(self.problems(value, one, at, depth + 1), MAX_PROBLEMS)) for one in any_of]
            if all(found):
                yield min(found, key=len)[0]
        yield from _bounds(value, schema, at)
        if isinstance(value, dict):
            yield from self._object(value, schema, at, depth)
        elif isinstance(value, list) and "items" in schema:
            for place, item in enumerate(value):
                yield from self.problems(item, schema["items"], at.down(place), depth + 1)

    def _object(self, value: dict[str, Any], schema: dict[str, Any], at: Path, depth: int) -> Iterator[Problem]:
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        self._steps.take(len(schema.get("required", ())))
        for name in schema.get("required", ()):
            if name not in value:
                described = known.get(name)
                hint = described.get("description", "add it") if isinstance(described, dict) else "add it"
                yield Problem(str(at.down(name)), f"{name} is missing", clipped(str(hint), 200))
        for name, item in value.items():
            if name not in known and more is False:
                self._steps.take()
                hint = f"known: {clipped(', '.join(sorted(known)), 200) or 'nothing'}"
                yield Problem(str(at.down(name)), f"{clipped(name, 100)!r} is not known", hint)
            else:
                yield from self.problems(item, known.get(name, more), at.down(name), depth + 1)


def _bounds(value: Any, schema: dict[str, Any], at: Path) -> Iterator[Problem]:
    if isinstance(value, str | list):
        least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
        if len(value) < schema.get(least, 0):
            yield Problem(str(at), "it is too short", f"at least {schema[least]}")
        if len(value) > schema.get(most, len(value)):
            yield Problem(str(at), "it is too long", f"at most {schema[most]}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        for word, wrong, hint in _BOUNDS:
            if word in schema and wrong(value, schema[word]):
                yield Problem(str(at), f"{value} is out of range", f"{hint} {schema[word]}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _short(value: Any) -> str:
    """The start of a value as text. Large values are not converted as a whole."""
    if isinstance(value, str):
        value = value[:80]
    elif isinstance(value, dict | list) and (len(value) > 20 or any(isinstance(one, dict | list) for one in value)):
        return f"this {'object' if isinstance(value, dict) else 'list'}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _list(kinds: Any) -> str:
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)

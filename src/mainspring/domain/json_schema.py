"""Validates values against a bounded subset of JSON Schema.

Schemas come from workers. Unknown keywords, regular expressions and references to other documents are therefore
refused instead of ignored.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mainspring.domain.errors import Problem

CHECKS = frozenset((
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "anyOf", "$ref", "$defs",
))  # fmt: skip
NOTES = frozenset(("title", "description", "default", "examples", "$schema", "$comment", "format", "deprecated"))
MOST_DEPTH = 32
_REF = "#/$defs/"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", operator.lt, "at least"),
    ("maximum", operator.gt, "at most"),
    ("exclusiveMinimum", operator.le, "more than"),
    ("exclusiveMaximum", operator.ge, "less than"),
)


def schema_problem(schema: Any, *, depth: int = 0) -> str | None:
    """Return why a schema is unsupported, or None."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict) or depth > MOST_DEPTH:
        return "a schema is an object, at most 32 levels deep"
    for word in schema:
        if word not in CHECKS and word not in NOTES:
            return f"{word!r} is not supported; use {', '.join(sorted(CHECKS))}"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            return f"{kind!r} is not a type"
    if "$ref" in schema and not str(schema["$ref"]).startswith(_REF):
        return f"$ref {schema['$ref']!r} refers to another document; use {_REF}NAME"
    inner: list[Any] = [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for word, shape in (("properties", dict), ("$defs", dict), ("anyOf", list), ("required", list)):
        if not isinstance(schema.get(word, shape()), shape):
            return f"{word} has the wrong shape"
    inner += [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", [])]
    return next((wrong for one in inner if (wrong := schema_problem(one, depth=depth + 1))), None)


def problems(value: Any, schema: Any, pointer: str, *, templates: bool = False) -> Iterator[Problem]:
    """Return the problems of a value. With `templates`, a string with a template may become any type."""
    root = schema if isinstance(schema, dict) else {}
    yield from _problems(value, schema, pointer, root, templates, 0)


def _problems(value: Any, schema: Any, at: str, root: dict[str, Any], templates: bool, depth: int) -> Iterator[Problem]:
    if schema is True or (templates and isinstance(value, str) and "{{" in value):
        return
    if schema is False or depth > MOST_DEPTH:
        yield Problem(at, "nothing is expected here", "remove it")
        return
    if (ref := schema.get("$ref")) is not None:
        target = root.get("$defs", {}).get(str(ref).removeprefix(_REF), False)
        yield from _problems(value, target, at, root, templates, depth + 1)
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in (kinds if isinstance(kinds, list) else [kinds])):
        yield Problem(at, f"{_short(value)} is not of type {_list(kinds)}", f"give {_list(kinds)}")
        return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield Problem(at, f"{_short(value)} is not one of the values", f"one of {_short(schema['enum'])}")
    if "const" in schema and not _same(value, schema["const"]):
        yield Problem(at, f"{_short(value)} is not {_short(schema['const'])}", "give exactly that")
    if any_of := schema.get("anyOf"):
        found = [list(_problems(value, one, at, root, templates, depth + 1)) for one in any_of]
        if all(found):
            yield min(found, key=len)[0]
    yield from _bounds(value, schema, at)
    if isinstance(value, dict):
        yield from _object(value, schema, at, root, templates, depth)
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{at}/{place}", root, templates, depth + 1)


def _object(
    value: dict[str, Any], schema: dict[str, Any], at: str, root: dict[str, Any], templates: bool, depth: int
) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield Problem(f"{at}/{name}", f"{name} is missing", known.get(name, {}).get("description", "add it"))
    for name, item in value.items():
        if name not in known and schema.get("additionalProperties") is False:
            yield Problem(f"{at}/{name}", f"{name!r} is not known", f"known: {', '.join(sorted(known)) or 'nothing'}")
        else:
            wanted = known.get(name, schema.get("additionalProperties", True))
            yield from _problems(item, wanted, f"{at}/{name}", root, templates, depth + 1)


def _bounds(value: Any, schema: dict[str, Any], at: str) -> Iterator[Problem]:
    if isinstance(value, str | list):
        least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
        if len(value) < schema.get(least, 0):
            yield Problem(at, "it is too short", f"at least {schema[least]}")
        if len(value) > schema.get(most, len(value)):
            yield Problem(at, "it is too long", f"at most {schema[most]}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        for word, wrong, hint in _BOUNDS:
            if word in schema and wrong(value, schema[word]):
                yield Problem(at, f"{value} is out of range", f"{hint} {schema[word]}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _list(kinds: Any) -> str:
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)

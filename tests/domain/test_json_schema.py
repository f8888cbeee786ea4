"""Values against schemas, and schemas against what is supported."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.json_schema import problems, schema_problem

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "mode": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/point"}]},
        "on": {"const": True},
    },
    "required": ["text"],
    "additionalProperties": False,
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}


def found(value: Any, **more: Any) -> list[tuple[str, str]]:
    return [(p.pointer, p.message) for p in problems(value, SCHEMA, "", **more)]


@pytest.mark.parametrize(
    "value",
    [
        {"text": "a"},
        {"text": "a", "count": 9, "mode": "b", "tags": ["x", "y"], "either": None, "on": True},
        {"text": "a", "count": 2.0, "either": {"x": 1.5, "more": []}},
    ],
)
def test_what_fits_has_no_problems(value: Any) -> None:
    assert found(value) == []


@pytest.mark.parametrize(
    ("value", "pointer", "message"),
    [
        ([], "", "[] is not of type object"),
        ({}, "/text", "text is missing"),
        ({"text": ""}, "/text", "it is too short"),
        ({"text": "abcdef"}, "/text", "it is too long"),
        ({"text": "a", "count": 10}, "/count", "10 is out of range"),
        ({"text": "a", "count": True}, "/count", "True is not of type integer"),
        ({"text": "a", "count": 1.5}, "/count", "1.5 is not of type integer"),
        ({"text": "a", "mode": "c"}, "/mode", "'c' is not one of the values"),
        ({"text": "a", "tags": ["x", 1]}, "/tags/1", "1 is not of type string"),
        ({"text": "a", "tags": ["x"] * 3}, "/tags", "it is too long"),
        ({"text": "a", "either": {}}, "/either", "{} is not of type null"),
        ({"text": "a", "on": 1}, "/on", "1 is not True"),
        ({"text": "a", "extra": 1}, "/extra", "'extra' is not known"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(value: Any, pointer: str, message: str) -> None:
    assert found(value) == [(pointer, message)]


def test_what_is_filled_in_later_may_become_anything() -> None:
    assert found({"text": "{{params.text}}", "count": "{{params.n}}"}, templates=True) == []
    assert found({"text": "a", "count": "{{params.n}}"}) == [("/count", "'{{params.n}}' is not of type integer")]


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(a+)+"},
        {"$ref": "https://example.org/x"},
        {"type": "strange"},
        {"items": {"oneOf": []}},
        [],
        {"properties": []},
        {"properties": {"x": 1}},
    ],
)
def test_schemas_that_can_not_be_used_are_refused(schema: Any) -> None:
    assert schema_problem(schema)


def test_the_deepest_schema_ends() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"items": schema}
    assert schema_problem(schema)
    assert schema_problem(SCHEMA) is None
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert [p.message for p in problems(1, endless, "")] == ["nothing is expected here"]

"""The API reference as tables: operations, parameters, types and examples of an OpenAPI document."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mainspring.api.problem import TITLES

MAX_EXAMPLE_DEPTH = 4
_PREFIX = "#/components/schemas/"
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    type: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    default: str


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    description: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    operation_id: str
    method: str
    path: str
    tag: str
    scope: str
    summary: str
    description: str

    def matches(self, words: list[str]) -> bool:
        text = f"{self.method} {self.path} {self.operation_id} {self.summary} {self.description}".lower()
        return all(word in text for word in words)


class ApiReference:
    """What the pages of the API reference show of an OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._schemas: dict[str, Schema] = document["components"]["schemas"]
        self._found = {
            found["operationId"]: (_operation(method, path, found), found)
            for path, methods in document["paths"].items()
            for method, found in methods.items()
        }

    def tags(self, search: str = "") -> dict[str, list[Operation]]:
        """The operations that contain all words of a search, by tag."""
        words, groups = search.lower().split(), dict[str, list[Operation]]()
        for operation, _ in self._found.values():
            if operation.matches(words):
                groups.setdefault(operation.tag, []).append(operation)
        return dict(sorted(groups.items()))

    def operation(self, operation_id: str) -> Operation | None:
        found = self._found.get(operation_id)
        return None if found is None else found[0]

    def parameters(self, operation_id: str) -> list[Parameter]:
        return [
            Parameter(p["name"], p["in"], type_text(p["schema"]), p["required"], p.get("description", ""))
            for p in self._found[operation_id][1]["parameters"]
        ]

    def body(self, operation_id: str) -> Schema | None:
        return _content(self._found[operation_id][1].get("requestBody", {}))

    def responses(self, operation_id: str) -> list[tuple[str, str, str]]:
        """Status, type and description of each response; then the statuses of errors."""
        operation, found = self._found[operation_id]
        made = [
            (status, type_text(_content(response) or {}) if _content(response) else "", response["description"])
            for status, response in found["responses"].items()
            if status != "default"
        ]
        errors = [401, 403, 429, 503]
        errors += [404] if "{" in operation.path else []
        errors += [409, 413, 422] if "requestBody" in found else []
        return made + [(str(status), "Problem", TITLES[status]) for status in sorted(errors)]

    def types(self, operation_id: str) -> list[Type]:
        """The types of body and responses, and those that they contain; the outermost first."""
        names: dict[str, None] = {}
        pending = list(_references(self._found[operation_id][1]))
        while pending:
            name = pending.pop(0)
            if name not in names:
                names[name] = None
                pending += _references(self._schemas[name])
        return [_type(name, self._schemas[name]) for name in names]

    def curl(self, operation_id: str, server: str) -> str:
        """A command that calls the operation; angle brackets stand for values to fill in."""
        operation, found = self._found[operation_id]
        path = operation.path.replace("{", "<").replace("}", ">")
        parts = ["curl"] + ([] if operation.method == "GET" else ["-X", operation.method])
        parts += [shlex.quote(server + path), "-H", '"Authorization: Bearer $MAINSPRING_TOKEN"']
        if any(p["name"] == "Idempotency-Key" for p in found["parameters"]):
            parts += ["-H", '"Idempotency-Key: $(uuidgen)"']
        if (schema := self.body(operation_id)) is not None:
            example = json.dumps(self._example(schema), ensure_ascii=False)
            parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(example)]
        return " ".join(parts)

    def _example(self, schema: Schema, depth: int = 0) -> Any:
        """A value with the required fields only."""
        if (name := _name(schema)) is not None:
            return self._example(self._schemas[name], depth)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return self._example(choices[0], depth)
        if "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return schema["enum"][0]
        if "const" in schema:
            return schema["const"]
        if schema.get("type") == "object" and depth < MAX_EXAMPLE_DEPTH:
            fields, required = schema.get("properties", {}), schema.get("required", ())
            return {name: self._example(fields[name], depth + 1) for name in required}
        if schema.get("type") == "array":
            return [self._example(schema.get("items") or {}, depth + 1)] if depth < MAX_EXAMPLE_DEPTH else []
        return {"integer": 1, "number": 1.0, "boolean": True, "object": {}}.get(schema.get("type", ""), "…")


def type_text(schema: Schema) -> str:
    """A schema in one line, such as `string | null` or `list of Job`."""
    if (name := _name(schema)) is not None:
        return name
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(type_text(choice) for choice in choices))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"list of {type_text(schema.get('items') or {})}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {type_text(values)}" if isinstance(values, dict) and values else "object"
    kind = schema.get("type", "any")
    text = " | ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{text} ({schema['format']})" if "format" in schema else text


def _operation(method: str, path: str, found: dict[str, Any]) -> Operation:
    return Operation(
        found["operationId"],
        method.upper(),
        path,
        found["tags"][0],
        found["security"][0]["token"][0],
        found["summary"],
        " ".join(found.get("description", "").split()),
    )


def _type(name: str, schema: Schema) -> Type:
    required = schema.get("required", ())
    fields = tuple(
        Field(field, type_text(found), "required" if field in required else _default(found))
        for field, found in schema.get("properties", {}).items()
    )
    return Type(name, " ".join(schema.get("description", "").split()), fields)


def _default(schema: Schema) -> str:
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "optional"


def _content(message: dict[str, Any]) -> Schema | None:
    return next((content["schema"] for content in message.get("content", {}).values()), None)


def _name(schema: Schema) -> str | None:
    return schema["$ref"].removeprefix(_PREFIX) if "$ref" in schema else None


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if (name := node.get("$ref")) is not None:
            yield name.removeprefix(_PREFIX)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)

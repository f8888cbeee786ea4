"""What the generated clients contain: types and operations of an OpenAPI document, in the terms of both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
_PREFIX = "#/components/schemas/"
_WORD = re.compile(r"[A-Za-z0-9]+")
_PARAM = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of the client; `response` is None if the response has no body, or is not JSON."""

    name: str
    method: str
    path: str
    summary: str
    path_params: tuple[str, ...]
    body: Schema | None
    response: Schema | None


class ClientModel:
    """Types by name, and operations in the order of the document."""

    def __init__(self, api: dict[str, Any]) -> None:
        self.version: str = api["info"]["version"]
        self.operations = [
            _operation(method, path, found)
            for path, methods in api["paths"].items()
            for method, found in methods.items()
            if _is_for_clients(path, found)
        ]
        schemas: dict[str, Schema] = api["components"]["schemas"]
        names: dict[str, None] = {}
        pending = ["Problem", *(name for o in self.operations for name in references([o.body, o.response]))]
        while pending:
            name = pending.pop(0)
            if name not in names:
                names[name] = None
                pending += references(schemas[name])
        self.types = {type_name(name): schemas[name] for name in sorted(names)}


def _is_for_clients(path: str, found: dict[str, Any]) -> bool:
    """Not the protocol of workers, and not what is no JSON: streams, downloads and metrics."""
    if "worker" in found["security"][0]["token"] or not path.startswith("/api/v1/"):
        return False
    return "204" in found["responses"] or any("content" in r for s, r in found["responses"].items() if s != "default")


def _operation(method: str, path: str, found: dict[str, Any]) -> Operation:
    response: dict[str, Any] = next((r for status, r in found["responses"].items() if status != "default"), {})
    return Operation(
        found["operationId"],
        method.upper(),
        path,
        found["summary"],
        tuple(_PARAM.findall(path)),
        _content(found.get("requestBody", {})),
        _content(response),
    )


def _content(message: dict[str, Any]) -> Schema | None:
    return next((content["schema"] for content in message.get("content", {}).values()), None)


def type_name(name: str) -> str:
    """The name of a component as an identifier: `Page_Job_` is PageJob."""
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(name))


def method_name(operation_id: str) -> str:
    """`jobs_list_jobs` as JobsListJobs."""
    return "".join(word.capitalize() for word in operation_id.split("_"))


def reference(schema: Schema) -> str | None:
    return type_name(schema["$ref"].removeprefix(_PREFIX)) if "$ref" in schema else None


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if (name := node.get("$ref")) is not None:
            yield name.removeprefix(_PREFIX)
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def choices(schema: Schema) -> list[Schema]:
    """The members of a union; empty if the schema is none."""
    found: list[Schema] = schema.get("anyOf") or schema.get("oneOf") or []
    if not found and isinstance(schema.get("type"), list):
        found = [{**schema, "type": kind} for kind in schema["type"]]
    return found


def sentence(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /")

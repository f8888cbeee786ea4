"""OpenAPI 3.1 document, generated from the route table and its types."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mainspring import __version__
from mainspring.api.idempotency import MAX_KEY_CHARS
from mainspring.api.route import Endpoint

_PARAM = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{name}"

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "For 24 hours, a request of the same token with the same key and body gets the same response",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]+$"},
}
PROBLEM = {
    "type": "object",
    "required": ["title", "status", "detail", "code", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string"},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                },
            },
        },
    },
}


def document(endpoints: list[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    types = [t for e in endpoints for t in (e.body, e.response) if t is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(t): schema for t, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mainspring", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, by_type: dict[int, dict[str, Any]]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAM.findall(endpoint.path)
    ] + [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in endpoint.query]
    if endpoint.creates:
        parameters.append(IDEMPOTENCY_KEY)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.handle.__module__.rpartition('.')[2]}_{endpoint.handle.__name__}",
        "tags": [endpoint.path.split("/")[3] if endpoint.path.startswith("/api/v1/") else "system"],
        "security": [{"token": [endpoint.scope]}],
        "parameters": parameters,
        "responses": {
            str(endpoint.status): _response(endpoint, by_type),
            "default": {
                "description": "A problem document: what is wrong and what to do",
                "content": {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}},
            },
        },
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_type[id(endpoint.body)]}},
        }
    return operation


def _response(endpoint: Endpoint, by_type: dict[int, dict[str, Any]]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": endpoint.summary}
    if endpoint.response is not None:
        response["content"] = {"application/json": {"schema": by_type[id(endpoint.response)]}}
    return response

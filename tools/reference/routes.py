"""`docs/reference/api.md`: every route of the HTTP API with its types and errors."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.api.problem import CODES, STATUS, TITLES
from mainspring.api.route import Endpoint
from mainspring.codec import encode
from mainspring.domain import errors
from mainspring.domain.schedule.spec import ErrorCode
from tools.reference.markdown import anchor, code, table
from tools.reference.markdown import page as make_page
from tools.tree import SOURCE, python_files

_BOUNDS = {
    "minimum": "≥ {}", "maximum": "≤ {}", "exclusiveMinimum": "> {}", "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items", "maxItems": "at most {} items",
    "minProperties": "at least {} entries", "maxProperties": "at most {} entries",
}  # fmt: skip


def page() -> str:
    api = json.loads(encode(document(endpoints())))
    table_of = {(e.path, e.method): e for e in endpoints()}
    groups: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            endpoint = table_of[path, method.upper()]
            groups.setdefault(operation["tags"][0], []).extend(_operation(endpoint, operation))
    return make_page(
        "HTTP API reference",
        "Send a token as `Authorization: Bearer ms_…`. Bodies and answers are JSON; times are RFC 3339 in UTC. Each"
        " route needs the scope that it lists; the scope `admin` includes all others. The same description is served"
        " as OpenAPI 3.1 at `/api/openapi.json`.",
        "## Freshness\n\nReads of jobs, executions and the first pages of their lists are cached: a response is at most"
        " one second old. Your own writes are always visible in your next read, as long as one api process serves you."
        " Behind a load balancer, send back what the responses to your writes said; the Python clients do:",
        table(
            ("Header", "Meaning"),
            [
                ("`Mainspring-Written`", "in the response to a write: a name of that write"),
                (
                    "`Mainspring-Seen-After`",
                    "in a read: the names of your writes of the last two seconds, separated by commas, at most 16;"
                    " the response shows all of them",
                ),
            ],
        ),
        "Long polls (`wait`), pages after the first (`cursor`), logs and streams are never cached.",
        "## Rate limits\n\nEvery response to a limited token has `RateLimit-Policy` (`q` requests in `w` seconds)"
        " and `RateLimit` (`r` requests are left; in `t` seconds all of them). Responses with status 429 and 503 have"
        " `Retry-After`. Workers are not limited.",
        "## Repeating requests\n\nA POST that creates something accepts `Idempotency-Key`: 1 to 255 visible ASCII"
        " characters, such as a UUID. For 24 hours, a request of the same token with the same path, key and body gets"
        " the response of the first one and `Idempotent-Replayed: true`; another body is a 409 (`key_reused`).",
        *(text for tag, texts in sorted(groups.items()) for text in (f"## {tag}", *texts)),
        "## Errors\n\nAn error is a problem document (RFC 9457) of the type [Problem](#problem). `code` is stable:"
        " programs should test it, not `detail`.",
        table(("Status", "Title", "Codes"), _errors()),
        "## Types",
        *(text for name, schema in sorted(api["components"]["schemas"].items()) for text in _type(name, schema)),
    )


def _operation(endpoint: Endpoint, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {endpoint.method} {endpoint.path}"
    yield " ".join((inspect.getdoc(endpoint.handle) or operation["summary"]).split())
    names = {
        place: ", ".join(code(each["name"]) for each in operation["parameters"] if each["in"] == place)
        for place in ("path", "query", "header")
    }
    rows = [
        ("Scope", code(endpoint.scope)),
        ("Path parameters", names["path"]),
        ("Query parameters", names["query"]),
        ("Headers", names["header"]),
        ("Body", _content(operation.get("requestBody", {}))),
        ("Answer", f"{endpoint.status} {_content(operation['responses'][str(endpoint.status)])}".strip()),
    ]
    yield "\n".join(f"- {label}: {value}" for label, value in rows if value)


def _content(message: dict[str, Any]) -> str:
    return " or ".join(_schema(content["schema"]) for content in message.get("content", {}).values())


def _type(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {_title(name)}"
    yield " ".join(schema.get("description", "").split())
    required = schema.get("required", ())
    if "properties" in schema:
        rows = [
            (code(field), _schema(found), "required" if field in required else _default(found))
            for field, found in schema["properties"].items()
        ]
        yield table(("Field", "Type", "Default"), rows)
    else:
        yield _schema(schema)


def _schema(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    match schema:
        case {"$ref": str(reference)}:
            title = _title(reference.rpartition("/")[2])
            return f"[{title}](#{anchor(title)})"
        case {"anyOf": list(choices)}:
            return " or ".join(dict.fromkeys(_schema(choice) for choice in choices))
        case {"enum": list(values)}:
            return ", ".join(code(str(value)) for value in values)
        case {"type": "array", **rest}:
            items = rest.get("items")
            kind = f"list of {_schema(items)}" if isinstance(items, dict) and items else "list"
        case {"type": "object", "additionalProperties": dict(values)} if values:
            kind = f"map of {_schema(values)}"
        case {"type": str(kind)}:
            kind = schema.get("format", kind)
        case _:
            return "any"
    bounds = [words.format(schema[bound]) for bound, words in _BOUNDS.items() if bound in schema]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _title(component: str) -> str:
    """The type behind a component name: `Page_Job_` is Page[Job]."""
    name, _, parameter = component.partition("_")
    return f"{name}[{parameter.removesuffix('_')}]" if parameter.endswith("_") else component


def _default(schema: dict[str, Any]) -> str:
    return code(json.dumps(schema["default"], ensure_ascii=False)) if "default" in schema else ""


def _errors() -> Iterator[tuple[str, str, str]]:
    by_status: dict[int, set[str]] = {}
    for kind, found in error_codes():
        by_status.setdefault(CODES.get(found, STATUS[kind]), set()).add(found)
    for status, found_codes in sorted(by_status.items()):
        yield str(status), TITLES[status], ", ".join(map(code, sorted(found_codes)))


def error_codes() -> set[tuple[type[errors.MainspringError], str]]:
    """Every error class with its own code, and each narrower code that the server's code gives it."""
    kinds = {kind.__name__: kind for kind in STATUS} | {"invalid": errors.Invalid, "bad_query": errors.Invalid}
    found = {(kind, kind.code) for kind in STATUS} | {(errors.Invalid, code) for code in get_args(ErrorCode)}
    for path in python_files(SOURCE):
        if path.parts[len(SOURCE.parts)] in ("cli", "client", "sdk", "embedded", "importers", "runner"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (kind := kinds.get(ast.unparse(node.func).rpartition(".")[2])):
                found |= {
                    (kind, str(word.value.value))
                    for word in node.keywords
                    if word.arg == "code" and isinstance(word.value, ast.Constant)
                }
    return found

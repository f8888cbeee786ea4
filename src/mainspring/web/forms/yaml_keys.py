"""The keys that YAML of one kind can have, for the completion of the editors: a tree from the JSON Schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from mainspring.manifest.schema import schema

MAX_DEPTH = 7
ANY = "*"
"""The key of names that users choose, and of items of a list."""
Tree = dict[str, Any]


@cache
def known_keys(kind: str) -> str:
    """Return the tree as JSON: a key without keys below it has 0."""
    whole = schema()
    (body,) = (branch["then"] for branch in whole["allOf"] if branch["if"]["properties"]["kind"]["const"] == kind)
    return msgspec.json.encode(_tree(body, whole["$defs"], MAX_DEPTH)).decode()


def _tree(node: Any, definitions: dict[str, Any], depth: int) -> Tree:
    """Merge the keys of a schema and of its alternatives."""
    if not isinstance(node, dict) or depth == 0:
        return {}
    found: Tree = {}
    if "$ref" in node:
        found |= _tree(definitions[node["$ref"].rpartition("/")[2]], definitions, depth)
    for alternative in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        found |= _tree(alternative, definitions, depth)
    for key, inner in node.get("properties", {}).items():
        found[key] = _tree(inner, definitions, depth - 1) or 0
    for inner in (node.get("additionalProperties"), node.get("items")):
        if below := _tree(inner, definitions, depth - 1):
            found[ANY] = below
    return found

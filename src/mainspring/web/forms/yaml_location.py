"""Where in a YAML text a problem is: by the mark of its message, or by the pointer into what was read."""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from mainspring.domain.errors import Problem

_SAID = re.compile(r"line (\d+), column (\d+)")
_SHORT = ("shell", "http", "python")


class Place(NamedTuple):
    """A problem with its line and column, counted from 1; 0 if it has none."""

    problem: Problem
    line: int
    column: int


def place(text: str, problem: Problem) -> Place:
    if said := _SAID.search(problem.pointer):
        return Place(problem, int(said[1]), int(said[2]))
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        return Place(problem, 0, 0)
    path = [part for part in problem.pointer.split("/") if part]
    found = _walk(root, _in_manifest(root, path)) if root is not None and path else None
    return Place(problem, 0, 0) if found is None else Place(problem, found.line + 1, found.column + 1)


def _in_manifest(root: yaml.Node, path: list[str]) -> list[str]:
    """The name of a manifest stands in its metadata, and the rest in its spec."""
    if "spec" not in _keys(root) or path[0] in ("kind", "metadata", "spec"):
        return path
    return ["metadata", *path] if path[0] == "name" else ["spec", *path]


def _walk(node: yaml.Node, path: list[str]) -> yaml.Mark | None:
    """As far as the path leads: what is missing is a problem of what it is missing in."""
    mark = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            keys = _keys(node)
            if part == "task" and part not in keys:
                part = next((short for short in _SHORT if short in keys), part)
            if part not in keys:
                # `shell: [echo]` has its argv right there.
                continue
            mark, node = keys[part]
        elif isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
            node = node.value[int(part)]
            mark = node.start_mark
    return mark


def _keys(node: yaml.Node) -> dict[str, tuple[yaml.Mark, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): (key.start_mark, value) for key, value in node.value}

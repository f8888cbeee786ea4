"""Find the line and column of a problem in a YAML text."""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from mainspring.domain.errors import Problem

_LINE_AND_COLUMN = re.compile(r"line (\d+), column (\d+)")
_TASK_SHORTHANDS = ("shell", "http", "python")


class LocatedProblem(NamedTuple):
    """A problem with its line and column, counted from 1; 0 if unknown."""

    problem: Problem
    line: int
    column: int


def locate(text: str, problem: Problem) -> LocatedProblem:
    """Use the position that the parser reported, else follow the problem's JSON pointer through the text."""
    if reported := _LINE_AND_COLUMN.search(problem.pointer):
        return LocatedProblem(problem, int(reported[1]), int(reported[2]))
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        return LocatedProblem(problem, 0, 0)
    path = [part for part in problem.pointer.split("/") if part]
    mark = _walk(root, _in_manifest(root, path)) if root is not None and path else None
    return LocatedProblem(problem, 0, 0) if mark is None else LocatedProblem(problem, mark.line + 1, mark.column + 1)


def _in_manifest(root: yaml.Node, path: list[str]) -> list[str]:
    """Map a pointer into a definition to a path in its manifest: the name is in `metadata`, the rest in `spec`."""
    if "spec" not in _keys(root) or path[0] in ("kind", "metadata", "spec"):
        return path
    return ["metadata", *path] if path[0] == "name" else ["spec", *path]


def _walk(node: yaml.Node, path: list[str]) -> yaml.Mark | None:
    """Follow the path as far as it exists: a missing field is located at its parent."""
    mark = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            keys = _keys(node)
            if part == "task" and part not in keys:
                part = next((short for short in _TASK_SHORTHANDS if short in keys), part)
            if part not in keys:
                # `shell: [echo]` is shorthand for `task: {argv: [echo]}`.
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

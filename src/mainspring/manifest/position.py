"""Find the line and column of a problem in a YAML text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mainspring.domain.errors import Invalid, Problem
from mainspring.manifest.short_forms import SHORT_FORMS
from mainspring.manifest.yaml_text import Place, documents_in

_LINE_AND_COLUMN = re.compile(r"line (\d{1,9}), column (\d{1,9})")
_INDEX = re.compile(r"\d{1,9}", re.ASCII)


class LocatedProblem(NamedTuple):
    """A problem with its line and column, counted from 1; 0 if unknown."""

    problem: Problem
    line: int
    column: int


def locate(text: str, problems: Sequence[Problem], document: int = 0) -> list[LocatedProblem]:
    """Use the position that the parser reported, else follow the problem's JSON pointer through a document."""
    if all(_LINE_AND_COLUMN.search(problem.pointer) for problem in problems):
        return [_located(None, problem) for problem in problems]
    return located_in(places_of(text), [(document, problem) for problem in problems])


def places_of(text: str) -> list[Place]:
    """The places of the documents of a text; empty if it is invalid."""
    try:
        return [document.place for document in documents_in(text, located=True)]
    except Invalid:
        return []


def located_in(places: Sequence[Place], problems: Sequence[tuple[int, Problem]]) -> list[LocatedProblem]:
    """Locate problems, each with the number of its document."""
    return [_located(places[n] if n < len(places) else None, problem) for n, problem in problems]


def _located(root: Place | None, problem: Problem) -> LocatedProblem:
    if reported := _LINE_AND_COLUMN.search(problem.pointer):
        return LocatedProblem(problem, int(reported[1]), int(reported[2]))
    if root is None:
        return LocatedProblem(problem, 0, 0)
    path = [part.replace("~1", "/").replace("~0", "~") for part in problem.pointer.split("/") if part]
    return LocatedProblem(problem, *_walk(root, _in_manifest(root, path)))


def _in_manifest(root: Place, path: list[str]) -> list[str]:
    """Map a pointer into a definition to a path in its manifest: the name is in `metadata`, the rest in `spec`."""
    if not isinstance(root.inner, dict) or "spec" not in root.inner or not path:
        return path
    if path[0] in ("kind", "metadata", "spec"):
        return path
    return ["metadata", *path] if path[0] == "name" else ["spec", *path]


def _walk(place: Place, path: list[str]) -> tuple[int, int]:
    """Follow the path as far as it exists: a missing field is located at its parent."""
    line, column = place.line, place.column
    for part in path:
        inner = place.inner
        if isinstance(inner, dict):
            if part == "task" and part not in inner:
                part = next((short for short in SHORT_FORMS if short in inner), part)
            if part not in inner:
                # `shell: [echo]` is shorthand for `task: {argv: [echo]}`.
                continue
            line, column, place = inner[part]
        elif isinstance(inner, list) and _INDEX.fullmatch(part) and int(part) < len(inner):
            place = inner[int(part)]
            line, column = place.line, place.column
    return line, column

"""Line diffs of two definitions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from mainspring.display.definitions import as_json
from mainspring.domain.job import JobSpec
from mainspring.web.draw.filters import json_text

CONTEXT_LINES = 2


class DiffLine(NamedTuple):
    """`…` stands for lines that are left out."""

    sign: Literal["+", "-", " ", "…"]
    text: str


def diff_lines(before: Sequence[str], after: Sequence[str], *, context: int = CONTEXT_LINES) -> list[DiffLine]:
    """Return the unified diff without its header; empty if both are equal."""
    found: list[DiffLine] = []
    for line in list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]:
        if not line.startswith("@@"):
            found.append(DiffLine(line[0], line[1:]))  # type: ignore[arg-type]
        elif found:
            found.append(DiffLine("…", ""))
    return found


def difference(old: JobSpec, new: JobSpec) -> list[DiffLine]:
    """Compare two job definitions as JSON. `paused` is left out: an edit does not change it."""
    return diff_lines(_lines(old), _lines(new))


def changed_fields(old: JobSpec, new: JobSpec) -> list[str]:
    """Return the top-level fields in which two definitions differ."""
    before, after = _values(old), _values(new)
    return [name for name in after if before.get(name) != after[name]]


def _lines(spec: JobSpec) -> list[str]:
    return json_text(_values(spec)).splitlines()


def _values(spec: JobSpec) -> dict[str, Any]:
    return {name: value for name, value in as_json(spec).items() if name != "paused"}

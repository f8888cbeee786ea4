"""Line diffs of two definitions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from mainspring.display.definitions import as_json
from mainspring.domain.job import JobSpec
from mainspring.web.draw.filters import json_text

CONTEXT_LINES = 2
MAX_COMPARED_PAIRS = 60_000
"""Pairs of lines that are compared: the time of the comparison grows with their number."""
MAX_SHOWN = 1000


class DiffLine(NamedTuple):
    """`…` stands for lines that are left out."""

    sign: Literal["+", "-", " ", "…"]
    text: str


def diff_lines(before: Sequence[str], after: Sequence[str], *, context: int = CONTEXT_LINES) -> list[DiffLine]:
    """Return the unified diff without its header; empty if both are equal.

    Lines between the first and the last difference are compared in detail only if they are few.
    """
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if len(old) * len(new) > MAX_COMPARED_PAIRS or len(old) + len(new) > MAX_SHOWN:
        return _blocks(old, new)
    head, tail = before[max(0, start - context) : start], before[len(before) - end :][:context]
    return _clipped(_detailed([*head, *old, *tail], [*head, *new, *tail], context))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    """All old lines, then all new lines, each shortened."""
    removed = _clipped([DiffLine("-", line) for line in old[: MAX_SHOWN + 1]])
    return [*removed, *_clipped([DiffLine("+", line) for line in new[: MAX_SHOWN + 1]])]


def _clipped(lines: list[DiffLine]) -> list[DiffLine]:
    return lines if len(lines) <= MAX_SHOWN else [*lines[:MAX_SHOWN], DiffLine("…", "")]


def _detailed(before: Sequence[str], after: Sequence[str], context: int) -> list[DiffLine]:
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

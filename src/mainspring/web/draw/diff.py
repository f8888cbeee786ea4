"""Two definitions line by line: what goes, what comes, and a little around it."""

from __future__ import annotations

import difflib
from typing import Any, Literal, NamedTuple

from mainspring.display.definitions import as_json
from mainspring.domain.job import JobSpec
from mainspring.web.draw.labels import json_text

AROUND = 2


class Line(NamedTuple):
    sign: Literal["+", "-", " ", "…"]
    text: str


def difference(old: JobSpec, new: JobSpec) -> list[Line]:
    """Nothing if they say the same. Whether the job is paused is no part of it: an edit does not change that."""
    lines = list(difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=AROUND))[2:]
    found: list[Line] = []
    for line in lines:
        if not line.startswith("@@"):
            found.append(Line(line[0], line[1:]))  # type: ignore[arg-type]
        elif found:
            found.append(Line("…", ""))
    return found


def changed_fields(old: JobSpec, new: JobSpec) -> list[str]:
    """The top fields in which two definitions differ."""
    before, after = _values(old), _values(new)
    return [name for name in after if before.get(name) != after[name]]


def _lines(spec: JobSpec) -> list[str]:
    return json_text(_values(spec)).splitlines()


def _values(spec: JobSpec) -> dict[str, Any]:
    return {name: value for name, value in as_json(spec).items() if name != "paused"}

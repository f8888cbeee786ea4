"""Named queries: all SQL lives in store/sql/*.sql, each statement under `-- name:` with a line on its purpose.

A part that several statements share is written once under `-- part: NAME` and inserted for `<<NAME>>`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_HEAD = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_PART = re.compile(r"<<(\w+)>>")


@cache
def all_queries() -> dict[str, str]:
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for file in sorted(resources.files("mainspring.store").joinpath("sql").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        _, *pieces = _HEAD.split(file.read_text())
        for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            if name in found[kind]:
                raise ValueError(f"duplicate {kind} {name} in store/sql")
            found[kind][name] = body.strip().removesuffix(";")
    return {name: _PART.sub(lambda part: found["part"][part[1]], body) for name, body in found["name"].items()}


def q(name: str) -> str:
    """The text of a named query."""
    return all_queries()[name]

"""Named queries: all SQL lives in store/sql/*.sql, each statement under `-- name:` and a line on its purpose."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def all_queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(resources.files("mainspring.store").joinpath("sql").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(file.read_text())
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"two queries are named {name}")
            found[name] = body.strip().removesuffix(";")
    return found


def q(name: str) -> str:
    """The text of a named query."""
    return all_queries()[name]

"""Files that executions leave: how they are named."""

from __future__ import annotations

MOST_NAME = 200
MOST_FILES = 100
"""Of one execution."""


def name_problem(name: str) -> str | None:
    """Why a file can't be named so; None if it can. Names are relative paths with `/`, and lead nowhere else."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > MOST_NAME:
        return f"a name has 1 to {MOST_NAME} bytes"
    if not name.isprintable() or "\\" in name:
        return f"{name!r} has characters that names can't have: control characters or a backslash"
    if name.startswith("/"):
        return f"{name!r} is an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return f"{name!r} has a part that is empty, '.' or '..'"
    return None

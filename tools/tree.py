"""List the project's own files, for checks and reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "mainspring"

_TEXT = {".py", ".sql", ".md", ".toml", ".html", ".css", ".js", ".json", ".yaml", ".yml", ".sh", ".txt", ""}
_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


def text_files(root: Path = ROOT) -> Iterator[Path]:
    """Every text file of the project, without caches, environments, lock files and hidden folders except .ci."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and (not name.startswith(".") or name == ".ci")
        )
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix in _TEXT and not name.startswith(".") and name != "LICENSE":
                yield path


def python_files(root: Path = ROOT) -> Iterator[Path]:
    return (path for path in text_files(root) if path.suffix == ".py")

"""Reads the planted bugs, and applies one to a copy of the tree."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tools.tree import ROOT

BUGS = Path(__file__).parent / "bugs.toml"
COPIED = ("src", "tests", "tools", "docs", "examples", "benchmarks", "pyproject.toml", "README.md", "Makefile")

SERVERS = ".cache"
"""Programs that `make install-system` has fetched. Without them, tests of engines are skipped, and catch nothing."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement. `find` occurs exactly once in the file."""

    file: str
    find: str
    replace: str


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A planted bug and the tests that must fail with it."""

    name: str
    tests: tuple[str, ...]
    edit: tuple[Edit, ...]


def bugs() -> list[Bug]:
    """Return the planted bugs in the order of the file."""
    return msgspec.convert(tomllib.loads(BUGS.read_text(encoding="utf-8"))["bug"], list[Bug])


def edited(bug: Bug, root: Path = ROOT) -> dict[Path, str]:
    """Return the texts of the files that a bug changes. Raises ValueError if an edit does not fit the tree any more."""
    texts: dict[Path, str] = {}
    for edit in bug.edit:
        path = root / edit.file
        text = texts.get(path) or path.read_text(encoding="utf-8")
        if text.count(edit.find) != 1:
            raise ValueError(f"{bug.name}: the text to replace is {text.count(edit.find)} times in {edit.file}")
        texts[path] = text.replace(edit.find, edit.replace)
    for path, text in texts.items():
        if path.suffix == ".py":
            ast.parse(text, str(path))
    return texts


def copy_tree(to: Path) -> None:
    """Copy what tests need; the working tree is never changed."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, to / name)
    if (ROOT / SERVERS).is_dir():
        (to / SERVERS).symlink_to(ROOT / SERVERS)


@contextmanager
def planted(bug: Bug, root: Path) -> Iterator[None]:
    """Apply a bug to a copy, and take it out again."""
    texts = edited(bug, root)
    before = {path: path.read_bytes() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        yield
    finally:
        for path, data in before.items():
            path.write_bytes(data)

"""Patterns of file paths: `*.csv`, `2026-*/report-?.json`, `**/*.parquet`. Pure.

`*` and `?` do not match a slash, `**` matches any number of folders, `[a-c]` and `[!a]` match one character. As in a
shell, names that begin with a dot match only a pattern that begins with one. Matching a path takes linear time in its
length: the pattern is short, and no choice is made twice.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from mainspring.domain.errors import Problem

MAX_PATTERN_CHARS = 200
MAX_FOLDERS = 16
"""Folders below the watched one; deeper ones are not read."""
ANY_FOLDERS = "**"


class FilePattern:
    """A compiled pattern. `matches` takes a path with slashes, relative to the watched folder."""

    def __init__(self, text: str) -> None:
        self._parts = text.split("/")

    def matches(self, path: str) -> bool:
        names = path.split("/")
        parts, at, star, resume = self._parts, 0, -1, 0
        place = 0
        while place < len(names):
            if at < len(parts) and parts[at] == ANY_FOLDERS:
                star, resume, at = at, place, at + 1
            elif at < len(parts) and _is_match(names[place], parts[at]):
                place, at = place + 1, at + 1
            elif star >= 0 and not names[resume].startswith("."):
                resume += 1  # `**` takes one folder more
                place, at = resume, star + 1
            else:
                return False
        return at == len(parts)

    def may_contain(self, folder: str) -> bool:
        """Whether a file below this folder may match."""
        names = folder.split("/")
        if len(names) > MAX_FOLDERS:
            return False
        for place, (name, part) in enumerate(zip(names, self._parts, strict=False)):
            if part == ANY_FOLDERS:
                return not any(below.startswith(".") for below in names[place:])
            if not _is_match(name, part):
                return False
        return len(names) < len(self._parts)


def pattern_problems(text: str, pointer: str) -> list[Problem]:
    """What is wrong with a pattern that a user has written."""
    parts = text.split("/")
    hint = "such as *.csv, 2026-*/*.json or **/*.parquet"
    if not text or not text.isprintable() or len(text) > MAX_PATTERN_CHARS:
        return [Problem(pointer, f"a pattern has 1 to {MAX_PATTERN_CHARS} printable characters", hint)]
    if any(part in ("", ".", "..") for part in parts):
        return [Problem(pointer, "a pattern is relative to the folder, without empty parts, '.' and '..'", hint)]
    if any(ANY_FOLDERS in part and part != ANY_FOLDERS for part in parts):
        return [Problem(pointer, "** stands for whole folders", "write **/*.csv instead of **.csv")]
    if parts[-1] == ANY_FOLDERS:
        return [Problem(pointer, "a pattern ends with the name of a file", "write **/* for all files")]
    if len(parts) > MAX_FOLDERS:
        return [Problem(pointer, f"a pattern has at most {MAX_FOLDERS} parts", "watch a folder further down")]
    return []


def _is_match(name: str, part: str) -> bool:
    return fnmatchcase(name, part) and (not name.startswith(".") or part.startswith("."))

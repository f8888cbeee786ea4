"""Files and folders of an import, read with a bound on size and number."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from mainspring.domain.errors import Invalid, NotFound
from mainspring.importers.plan import MAX_CHARS, MAX_FILES, SourceFile
from mainspring.importers.readers import Source

_MAX_BYTES = 4 * MAX_CHARS


def read_files(source: Source, paths: tuple[str, ...]) -> list[SourceFile]:
    """The files to import: those that are named, those of a folder by their suffix, and stdin for `-`."""
    files: list[SourceFile] = []
    for path in paths:
        for found in _expanded(source, path):
            if len(files) >= MAX_FILES:
                raise Invalid(f"more than {MAX_FILES:,} files: import them in parts", code="too_many_files")
            files.append(_read(found))
    return files


def _expanded(source: Source, path: str) -> Iterator[str]:
    folder = Path(path)
    if path == "-" or not folder.is_dir():
        yield path
        return
    found = False
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith(".") and file.name.endswith(source.suffixes):
            found = True
            yield str(file)
    if not found:
        raise NotFound(f"{path} has no files that end with {' or '.join(source.suffixes)}")


def _read(path: str) -> SourceFile:
    try:
        if path == "-":
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", code="unreadable_source") from None
    name = "stdin" if path == "-" else path
    if len(content) > _MAX_BYTES:
        raise Invalid(f"{name} has more than {_MAX_BYTES:,} bytes: import it in parts", code="source_too_large")
    try:
        return SourceFile(name, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{name}:{line}: the text is not UTF-8: convert it first", code="unreadable_source") from None

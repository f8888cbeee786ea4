"""Looks into a folder for files that match a pattern. Blocking; the cost of a look is bounded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import MAX_PATH_BYTES, CannotLook, FoundFile, Look

MAX_ENTRIES = 100_000
"""Names that one look reads; a folder with more cannot be watched."""
MAX_FILES = 1_000
"""Matching files that one look examines; the next look continues."""


def look_into(place: str, *, root: str, pattern: FilePattern, after: str | None) -> Look:
    """Return the next matching files after a path, in the order of their paths.

    Links to folders are not followed; a link to a file counts if the file is below the root.
    """
    real_root = os.path.realpath(root)
    if not _is_below(os.path.realpath(place), real_root):
        raise CannotLook(f"{place} leads out of {root}, through a symbolic link")
    walk = _Walk(place, real_root, pattern)
    paths = sorted(path for path in walk.paths("") if after is None or path > after)
    files = [file for path in paths[:MAX_FILES] if (file := walk.examined(path)) is not None]
    return Look(files, paths[MAX_FILES - 1] if len(paths) > MAX_FILES else None, walk.problem)


@dataclass
class _Walk:
    place: str
    real_root: str
    pattern: FilePattern
    entries: int = 0
    skipped: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        found = []
        if self.unreadable:
            more = f" and {len(self.unreadable) - 1:,} more" if len(self.unreadable) > 1 else ""
            found.append(f"cannot read {self.unreadable[0]}{more}")
        if self.skipped:
            what = f"names that are not UTF-8 or have more than {MAX_PATH_BYTES:,} bytes"
            found.append(f"{self.skipped:,} {what} were left out: rename them")
        return "; ".join(found) or None

    def paths(self, folder: str) -> Iterator[str]:
        """The matching paths below a folder; reads each name, and no file."""
        full = os.path.join(self.place, folder) if folder else self.place
        try:
            with os.scandir(full) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in self._counted(entries)]
        except OSError as error:
            reason = f"{full}: {error.strerror}"
            if not folder:
                raise CannotLook(f"cannot read {reason}") from None
            if not isinstance(error, FileNotFoundError):
                self.unreadable.append(reason)
            return
        for name, is_folder in found:
            path = f"{folder}/{name}" if folder else name
            if is_folder:
                if self.pattern.may_contain(path):
                    yield from self.paths(path)
            elif not _is_storable(path):
                self.skipped += 1
            elif self.pattern.matches(path):
                yield path

    def _counted(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            self.entries += 1
            if self.entries > MAX_ENTRIES:
                hint = "move processed files away, or watch a folder further down"
                raise CannotLook(f"{self.place} contains more than {MAX_ENTRIES:,} files: {hint}")
            yield entry

    def examined(self, path: str) -> FoundFile | None:
        """A regular file with its version; None if it is gone, or a link out of the root."""
        full = os.path.join(self.place, path)
        try:
            found = os.lstat(full)
            if stat.S_ISLNK(found.st_mode):
                if not _is_below(os.path.realpath(full), self.real_root):
                    return None
                found = os.stat(full)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        modified_at = datetime.fromtimestamp(found.st_mtime_ns // 1_000 / 1_000_000, UTC)
        return FoundFile(path, found.st_size, modified_at, f"{found.st_size}-{found.st_mtime_ns}")


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _is_storable(path: str) -> bool:
    try:
        return len(path.encode()) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False

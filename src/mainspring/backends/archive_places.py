"""Places for the files of the archive: a folder, or an S3-compatible object store. Names are relative paths.

A file is stored whole or not at all, durably when `store` returns, and never changes. The calls block: use a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from mainspring.domain.errors import Invalid

PART_SUFFIX = ".part"


class ArchivePlace(Protocol):
    def store(self, name: str, file: Path) -> None: ...

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes from `start` until `end`; raises FileNotFoundError if there is no such file."""

    def delete(self, name: str) -> None:
        """Delete a file; one that does not exist is no error."""

    def names(self, prefix: str) -> Iterator[str]:
        """The names of the files below a folder."""


class FolderPlace:
    """A local or shared folder that only this user can read."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def store(self, name: str, file: Path) -> None:
        path = self._root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(PART_SUFFIX)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as target, file.open("rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        part.rename(path)
        _sync_folders(path.parent, self._root)

    def read(self, name: str, start: int, end: int) -> bytes:
        with (self._root / name).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def delete(self, name: str) -> None:
        path = self._root / name
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root or not _remove_empty(folder):
                break

    def names(self, prefix: str) -> Iterator[str]:
        for path in sorted((self._root / prefix).rglob("*")):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path.relative_to(self._root).as_posix()


def _sync_folders(folder: Path, root: Path) -> None:
    """Make the entries of new files and folders durable."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if folder == root:
            return
        folder = folder.parent


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def open_archive_place(url: str) -> ArchivePlace:
    """Open a folder, or an object store by a URL such as s3://bucket/prefix."""
    if find_spec("pyarrow") is None:
        raise Invalid(f"--archive-url {url} needs the extra `archive`: pip install 'mainspring[archive]'")
    if "://" not in url:
        return FolderPlace(Path(url))
    try:
        from mainspring.backends.archive_objects import ObjectPlace
    except ImportError:
        raise Invalid(f"--archive-url {url} needs the extra `s3`: pip install 'mainspring[archive,s3]'") from None
    return ObjectPlace(url)

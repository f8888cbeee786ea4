"""Temporary folders for attempts, each with a subfolder for artifacts.

Creating and removing folders is the slowest part of starting a short program. A folder that a program leaves unchanged
is therefore reused: nothing distinguishes it from a new one.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

PROGRESS, CHECKPOINT, ARTIFACTS, INPUTS = "progress", "checkpoint", "artifacts", "inputs"
_PRIVATE_FOLDER_MODE = 0o40700


def open_regular(path: Path) -> BinaryIO:
    """Open a file that a program wrote; OSError unless it is a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def open_below(folder: Path, name: str) -> BinaryIO:
    """Open a regular file below a folder, following no link on the way; a process may still write there."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(folder, flags | os.O_DIRECTORY)
    *folders, file = name.split("/")
    for part, more in [*((part, os.O_DIRECTORY) for part in folders), (file, 0)]:
        try:
            below = os.open(part, flags | more, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return os.fdopen(descriptor, "rb")


class FolderPool:
    """Creates and reuses the folders of attempts, below one root."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mainspring-"))
        self._numbers = itertools.count(1)
        self._spare: list[Path] = []

    def take(self) -> Path:
        if self._spare:
            return self._spare.pop()
        folder = self.root / str(next(self._numbers))
        (folder / ARTIFACTS).mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
        return folder

    def move_artifacts(self, folder: Path) -> Path | None:
        """Move an attempt's artifacts out of its folder and return where to; None if there are none."""
        artifacts = folder / ARTIFACTS
        try:
            if not stat.S_ISDIR(os.lstat(artifacts).st_mode) or not os.listdir(artifacts):
                return None
            moved = artifacts.rename(self.root / f"{next(self._numbers)}.{ARTIFACTS}")
            if stat.S_ISDIR(os.lstat(moved).st_mode):
                return moved
            moved.unlink()  # a link, put there meanwhile: it would lead out of the folder
            return None
        except OSError:  # the program removed or replaced it
            return None

    async def give_back(self, folder: Path, *, reusable: bool) -> None:
        """Remove the folder, or keep it for another attempt if it is `reusable` and unchanged."""
        if reusable and _is_unchanged(folder):
            self._spare.append(folder)
        else:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _is_unchanged(folder: Path) -> bool:
    artifacts = folder / ARTIFACTS
    try:
        for name in (PROGRESS, CHECKPOINT):
            (folder / name).unlink(missing_ok=True)
        private = os.lstat(folder).st_mode == os.lstat(artifacts).st_mode == _PRIVATE_FOLDER_MODE
        return private and os.listdir(folder) == [ARTIFACTS] and not os.listdir(artifacts)
    except OSError:
        return False

"""A temporary folder for each attempt, with one inside for what the program leaves to be kept.

Making and removing them is what a quick program would wait for most, so a folder that is left as it was found is used
again: nobody can tell it from a new one.
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
_PRIVATE = 0o40700


def open_plain(path: Path) -> BinaryIO:
    """To read a file that a program wrote: OSError unless it is a plain one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


class Folders:
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

    def set_aside(self, folder: Path) -> Path | None:
        """The folder with what the program left to be kept, now elsewhere; None if that is nothing."""
        left = folder / ARTIFACTS
        try:
            if not stat.S_ISDIR(os.lstat(left).st_mode) or not os.listdir(left):  # a link leads out of the folder
                return None
            return left.rename(self.root / f"{next(self._numbers)}.{ARTIFACTS}")
        except OSError:  # the program removed it, or made something else of it
            return None

    async def give_back(self, folder: Path, *, again: bool) -> None:
        """The attempt has ended. `again`: whether another may have the folder, if this one left nothing."""
        if again and _is_as_new(folder):
            self._spare.append(folder)
        else:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _is_as_new(folder: Path) -> bool:
    inner = folder / ARTIFACTS
    try:
        for name in (PROGRESS, CHECKPOINT):
            (folder / name).unlink(missing_ok=True)
        as_made = os.lstat(folder).st_mode == os.lstat(inner).st_mode == _PRIVATE
        return as_made and os.listdir(folder) == [ARTIFACTS] and not os.listdir(inner)
    except OSError:
        return False

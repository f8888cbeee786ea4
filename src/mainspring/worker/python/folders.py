"""Folders in which functions put their artifacts: made by the worker, and never named by a runner.

A runner gets one folder and makes a subfolder per call, named by the call's number. The worker takes a subfolder
through a descriptor of that very folder, so no link and no renamed folder leads it elsewhere.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import tempfile
from pathlib import Path


class RunnerFolders:
    """The folders of all runners of a worker, below one root."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mainspring-"))
        self.numbers = itertools.count(1)

    def new_attempt(self) -> Path:
        """Create the folder of an attempt in a sandbox."""
        return self._new(self.root, "attempt")

    def new_runner(self, parent: Path | None = None) -> RunnerFolder:
        return RunnerFolder(self, self._new(parent or self.root, "runner"))

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def _new(self, parent: Path, kind: str) -> Path:
        path = parent / f"{kind}-{next(self.numbers)}"
        path.mkdir(mode=0o700)
        return path


class RunnerFolder:
    """The folder of one runner."""

    def __init__(self, folders: RunnerFolders, path: Path) -> None:
        self._folders = folders
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def take(self, number: int) -> Path | None:
        """Move the artifacts of a call out of the runner's reach and return where to; None if there are none."""
        target = self._folders.root / f"{next(self._folders.numbers)}.artifacts"
        try:
            os.rename(str(number), target, src_dir_fd=self._descriptor)
            if stat.S_ISDIR(os.lstat(target).st_mode):
                return target
            target.unlink()  # a link, which the move did not follow
        except OSError:  # the function removed it
            pass
        return None

    def close(self) -> None:
        os.close(self._descriptor)
        shutil.rmtree(self.path, ignore_errors=True)

"""A lock that allows one supervisor per directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import DirectoryInUse


class DirectoryLock:
    """Held from construction to `release`; the kernel releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode().strip()
            os.close(self._descriptor)
            raise DirectoryInUse(
                f"{path.parent} is already in use by {f'process {holder}' if holder else 'another process'};"
                " stop that process or choose another directory"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)

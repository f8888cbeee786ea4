"""The temporary folder of one attempt: progress, checkpoint, inputs and artifacts as files.

Programs write these files, in containers too, so only regular files are read: a symbolic link could name a file that
only the worker may read, and a named pipe would never end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.worker.checkpoint import FileCheckpoint
from mainspring.worker.executors import Work
from mainspring.worker.isolation.folders import ARTIFACTS, CHECKPOINT, INPUTS, PROGRESS, FolderPool
from mainspring.worker.progress import FileProgress


class AttemptFolder:
    """The folder of an attempt.

    `quiescent` is false if a process may still write to it; its artifacts are dropped then.
    """

    __slots__ = ("path", "quiescent")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quiescent = True

    def environment(self, mounted_at: str | None = None) -> dict[str, str]:
        """Return the variables that name the files; `mounted_at` is the folder's path inside a container."""
        folder = mounted_at or str(self.path)
        names = (PROGRESS, CHECKPOINT, ARTIFACTS, INPUTS)
        return {f"MAINSPRING_{name.upper()}": os.path.join(folder, name) for name in names}

    def open_to_all(self) -> None:
        """Let every user of a container write to it. On the host its parent folder keeps others out."""
        for path in (self.path, self.path / ARTIFACTS):
            path.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)


@asynccontextmanager
async def attempt_folder(work: Work, folders: FolderPool, *, reusable: bool) -> AsyncIterator[AttemptFolder]:
    """Provide a folder for an attempt. `reusable`: whether another attempt may get it if it stays unchanged."""
    folder = AttemptFolder(folders.take())
    work.progress = FileProgress(folder.path / PROGRESS, mask=work.mask)
    checkpoint = work.checkpoint = FileCheckpoint(folder.path / CHECKPOINT, work.last_checkpoint)
    if work.inputs is not None:
        work.inputs = work.inputs.rename(folder.path / INPUTS)
    try:
        yield folder
    finally:
        checkpoint.refresh()
        if checkpoint.problem is not None:
            work.output.write("system", f"\n[checkpoint not saved: {checkpoint.problem}]\n".encode())
        if folder.quiescent:
            work.artifacts = folders.move_artifacts(folder.path)
        await folders.give_back(folder.path, reusable=reusable)

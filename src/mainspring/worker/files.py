"""The files of one attempt: progress and checkpoint, which are read while it runs, and what it leaves to be kept.

Programs write them, in containers too, so they are read as plain files or not at all: a link could name what only the
worker may read, and a pipe would never end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.worker.checkpoint import FileCheckpoint
from mainspring.worker.executors import Work
from mainspring.worker.isolation.folders import ARTIFACTS, CHECKPOINT, INPUTS, PROGRESS, Folders
from mainspring.worker.progress import FileProgress


class Place:
    """The folder of an attempt. `settled` is false if something may still write to it: then nothing is kept."""

    __slots__ = ("folder", "settled")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settled = True

    def environment(self, seen_as: str | None = None) -> dict[str, str]:
        """Where the program finds its files; `seen_as` is the folder's name where it runs."""
        folder = seen_as or str(self.folder)
        names = (PROGRESS, CHECKPOINT, ARTIFACTS, INPUTS)
        return {f"MAINSPRING_{name.upper()}": os.path.join(folder, name) for name in names}

    def open_to_all(self) -> None:
        """To whoever a container runs as. Nobody else comes past the folder above."""
        for path in (self.folder, self.folder / ARTIFACTS):
            path.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)


@asynccontextmanager
async def place_of(work: Work, folders: Folders, *, again: bool) -> AsyncIterator[Place]:
    """A place for an attempt. `again`: whether another may have the folder, if this one leaves nothing."""
    place = Place(folders.take())
    work.progress = FileProgress(place.folder / PROGRESS)
    checkpoint = work.checkpoint = FileCheckpoint(place.folder / CHECKPOINT, work.last_checkpoint)
    if work.inputs is not None:
        work.inputs = work.inputs.rename(place.folder / INPUTS)
    try:
        yield place
    finally:
        checkpoint.refresh()
        if checkpoint.trouble is not None:
            work.output.write("system", f"\n[the checkpoint was not kept: {checkpoint.trouble}]\n".encode())
        if place.settled:
            work.artifacts = folders.set_aside(place.folder)
        await folders.give_back(place.folder, again=again)

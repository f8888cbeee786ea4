"""A leader that archives, in a process of its own: `archive_program.py URL FOLDER STEP COUNT`.

It kills itself with SIGKILL when the step is complete for the COUNTth time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from mainspring.archive.write import ArchiveWriter
from mainspring.backends.archive_places import FolderPlace
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database

AFTER_S = 30 * 86_400.0


async def archive(url: str, folder: str, deadly: str, count: int) -> None:
    left = [count]

    def step(name: str) -> None:
        left[0] -= name == deadly
        if name == deadly and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async with Database(url, size=2) as database:
        writer = ArchiveWriter(database, FolderPlace(Path(folder)), step=step)
        for parent in CONTENTS:
            await writer.archive_all(parent, after_s=AFTER_S)


if __name__ == "__main__":
    asyncio.run(archive(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))

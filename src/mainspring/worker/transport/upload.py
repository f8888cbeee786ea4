"""Files that an attempt leaves: sent to the api one after the other, before its result."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import structlog

from mainspring.domain.artifact import MOST_FILES, name_problem
from mainspring.worker.executors import Done, Work
from mainspring.worker.transport.api_link import ApiAway, Link, Refused, SessionEnded

log = structlog.get_logger()

PIECE = 256 * 1024
RETRY_S = 1.0
GIVE_UP_S = 600.0


async def send_files(folder: Path, work: Work, done: Done, link: Link) -> Done:
    """How the attempt ended, now that its files are kept; a success that can't keep them is none."""
    if done.outcome not in ("succeeded", "failed", "timed_out"):
        return done
    try:
        for name, path in await asyncio.to_thread(found_in, folder):
            await _send(name, path, work, link)
    except (Refused, OSError) as error:
        trouble = f"an artifact was not kept: {error}"
        if done.outcome == "succeeded":
            return Done("failed", done.exit_code, trouble, retry=False)
        return replace(done, error=f"{done.error}; {trouble}")
    except SessionEnded as error:
        log.error("the session has ended; its files are nobody's", error=str(error))
    return done


def found_in(folder: Path) -> list[tuple[str, Path]]:
    """Plain files with their names. A link is refused: it could name what only the worker may read."""
    found = []
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(place, name)
            kind = path.lstat().st_mode
            if stat.S_ISDIR(kind):
                continue
            if not stat.S_ISREG(kind):
                raise Refused(f"{path.relative_to(folder)} is not a plain file")
            relative = str(path.relative_to(folder))
            if (wrong := name_problem(relative)) is not None:
                raise Refused(wrong)
            found.append((relative, path))
            if len(found) > MOST_FILES:
                raise Refused(f"an execution leaves at most {MOST_FILES} files")
    return sorted(found)


async def _send(name: str, path: Path, work: Work, link: Link) -> None:
    given = work.assignment
    query = {
        "session_id": str(work.session_id),
        "execution_id": str(given.execution_id),
        "attempt": str(given.attempt),
        "name": name,
    }
    began = monotonic()
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            try:
                await link.upload(query, os.fstat(descriptor).st_size, _pieces(file))
                return
            except ApiAway as error:
                if work.stop_outcome is not None or monotonic() - began > GIVE_UP_S:
                    raise Refused(f"{name} could not be sent: {error}") from error
                log.warning("an artifact waits for the api", name=name, error=str(error))
        await asyncio.sleep(RETRY_S)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield piece

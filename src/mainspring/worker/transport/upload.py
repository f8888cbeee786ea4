"""Uploads the files that an attempt leaves as artifacts, before its result is reported."""

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
from mainspring.worker.isolation.folders import open_below
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded

log = structlog.get_logger()

CHUNK_BYTES = 256 * 1024
RETRY_S = 1.0
GIVE_UP_S = 600.0


async def upload_artifacts(folder: Path, work: Work, done: Done, api: ApiClient) -> Done:
    """Upload every file in `folder` and return the outcome: an attempt whose artifacts are refused has failed."""
    try:
        for name, _ in await asyncio.to_thread(list_artifacts, folder):
            await _upload(name, folder, work, api)
    except (Refused, OSError) as error:
        problem = f"artifact not stored: {error}"
        if done.outcome == "succeeded":
            return Done("failed", done.exit_code, problem, retry=False)
        return replace(done, error=f"{done.error}; {problem}")
    except SessionEnded as error:
        log.error("artifacts.discarded", reason="session ended", error=str(error))
    return done


def list_artifacts(folder: Path) -> list[tuple[str, Path]]:
    """Return names and paths of all regular files below `folder`, sorted.

    Raises `Refused` for anything else: a symbolic link could name a file that only the worker may read.
    """
    found = []
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise Refused(f"{path.relative_to(folder)} is not a regular file")
            relative = str(path.relative_to(folder))
            if (problem := name_problem(relative)) is not None:
                raise Refused(problem)
            found.append((relative, path))
            if len(found) > MOST_FILES:
                raise Refused(f"an execution has at most {MOST_FILES} artifacts")
    return sorted(found)


def artifact_query(work: Work, name: str) -> dict[str, str]:
    """Return the query parameters that name an artifact and the attempt that uploads or downloads it."""
    return {
        "session_id": str(work.session_id),
        "execution_id": str(work.assignment.execution_id),
        "attempt": str(work.assignment.attempt),
        "name": name,
    }


async def _upload(name: str, folder: Path, work: Work, api: ApiClient) -> None:
    began = monotonic()
    while True:
        with open_below(folder, name) as file:
            try:
                size = os.fstat(file.fileno()).st_size
                await api.upload(artifact_query(work, name), work.assignment.credential, size, _chunks(file))
                return
            except ApiUnavailable as error:
                if work.stop_outcome is not None or monotonic() - began > GIVE_UP_S:
                    raise Refused(f"{name} could not be uploaded: {error}") from error
                log.warning("artifact.upload_failed", name=name, error=str(error), retry_s=RETRY_S)
        await asyncio.sleep(RETRY_S)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk

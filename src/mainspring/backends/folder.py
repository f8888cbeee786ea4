"""Artifacts in a folder: of this machine, or one that all api processes share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from mainspring.clock import Clock, SystemClock

PIECE = 1 << 20
PART = ".part"
STALE_S = 86_400.0


class FolderStore:
    """One file for each artifact, under the key we made up: names of users never become paths."""

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        self._root = root
        self._clock = clock or SystemClock()

    async def put(self, key: UUID, pieces: AsyncIterator[bytes]) -> None:
        path = self._path(key)
        part = path.with_suffix(PART)
        await asyncio.to_thread(_make, path.parent)
        descriptor = await asyncio.to_thread(os.open, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            waiting = bytearray()
            async for piece in pieces:
                waiting += piece
                if len(waiting) >= PIECE:
                    await asyncio.to_thread(_write, descriptor, waiting)
                    waiting = bytearray()
            await asyncio.to_thread(_write, descriptor, waiting)
            await asyncio.to_thread(os.fsync, descriptor)
            os.rename(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    async def get(self, key: UUID) -> AsyncIterator[bytes]:
        """The pieces; FileNotFoundError before the first if it is not here."""
        file = await asyncio.to_thread(self._path(key).open, "rb")
        return _pieces(file)

    async def delete(self, key: UUID) -> None:
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    async def sweep(self) -> None:
        """Removes what uploads left that were cut off."""
        await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        old = self._clock.now_ms() / 1000 - STALE_S
        for part in self._root.glob(f"*/*{PART}"):
            if part.stat().st_mtime < old:
                part.unlink(missing_ok=True)

    def _path(self, key: UUID) -> Path:
        return self._root / key.hex[:2] / key.hex


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(descriptor: int, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

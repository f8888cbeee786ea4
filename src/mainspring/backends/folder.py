"""Artifact store in a local or shared folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from mainspring.clock import Clock, SystemClock

CHUNK_BYTES = 1 << 20
PART_SUFFIX = ".part"
STALE_PART_S = 86_400.0


class FolderStore:
    """One file per artifact, named by its key: user-supplied names never become paths."""

    def __init__(self, root: Path, *, clock: Clock | None = None) -> None:
        self._root = root
        self._clock = clock or SystemClock()

    async def put(self, key: UUID, chunks: AsyncIterator[bytes]) -> None:
        path = self._path(key)
        part = path.with_suffix(PART_SUFFIX)
        await asyncio.to_thread(_make, path.parent)
        descriptor = await asyncio.to_thread(os.open, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            buffer = bytearray()
            async for chunk in chunks:
                buffer += chunk
                if len(buffer) >= CHUNK_BYTES:
                    await asyncio.to_thread(_write, descriptor, buffer)
                    buffer = bytearray()
            await asyncio.to_thread(_write, descriptor, buffer)
            await asyncio.to_thread(os.fsync, descriptor)
            os.rename(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    async def get(self, key: UUID) -> AsyncIterator[bytes]:
        """Return the chunks; raise FileNotFoundError before the first if the artifact does not exist."""
        file = await asyncio.to_thread(self._path(key).open, "rb")
        return _chunks(file)

    async def delete(self, key: UUID) -> None:
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    async def sweep(self) -> None:
        """Remove the partial files of interrupted uploads."""
        await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        old = self._clock.now_ms() / 1000 - STALE_PART_S
        for part in self._root.glob(f"*/*{PART_SUFFIX}"):
            if part.stat().st_mtime < old:
                part.unlink(missing_ok=True)

    def _path(self, key: UUID) -> Path:
        return self._root / key.hex[:2] / key.hex


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(descriptor: int, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

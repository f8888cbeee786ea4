"""Artifacts in an object store: S3 and what speaks like it, by obstore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import obstore
from obstore.store import from_url

from mainspring.domain.errors import Invalid

PIECE = 5 << 20
"""Parts of an upload in S3 are at least this large, all but the last."""


class ObjectStore:
    """One object for each artifact. Credentials come from the environment, as usual for the store."""

    def __init__(self, url: str) -> None:
        try:
            self._store = from_url(url)
        except Exception as error:
            raise Invalid(f"{url} can't be used as an artifact store: {error}") from None

    async def put(self, key: UUID, pieces: AsyncIterator[bytes]) -> None:
        """An upload in parts, which the store shows when the last one is there."""
        writer = obstore.open_writer_async(self._store, key.hex, buffer_size=2 * PIECE)
        async with writer as file:
            waiting = bytearray()
            async for piece in pieces:
                waiting += piece
                if len(waiting) >= PIECE:
                    await file.write(bytes(waiting))
                    waiting.clear()
            await file.write(bytes(waiting))

    async def get(self, key: UUID) -> AsyncIterator[bytes]:
        found = await obstore.get_async(self._store, key.hex)
        return _pieces(found)

    async def delete(self, key: UUID) -> None:
        try:
            await obstore.delete_async(self._store, key.hex)
        except FileNotFoundError:
            return

    async def sweep(self) -> None:
        """Uploads that were cut off are the store's to forget: set a rule for incomplete uploads."""


async def _pieces(found: obstore.GetResult) -> AsyncIterator[bytes]:
    async for piece in found.stream(min_chunk_size=1 << 20):
        yield bytes(piece)

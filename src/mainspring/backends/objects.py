"""Artifact store in S3 or a compatible object store, through obstore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import obstore
from obstore.store import from_url

from mainspring.domain.errors import Invalid

PART_BYTES = 5 << 20
"""The minimum size of an S3 multipart upload's parts, except the last."""


class ObjectStore:
    """One object per artifact. Credentials come from the environment, as usual for the store."""

    def __init__(self, url: str) -> None:
        try:
            self._store = from_url(url)
        except Exception as error:
            raise Invalid(f"cannot use {url} as an artifact store: {error}") from None

    async def put(self, key: UUID, chunks: AsyncIterator[bytes]) -> None:
        """Upload in parts; the object becomes visible when the upload is complete."""
        writer = obstore.open_writer_async(self._store, key.hex, buffer_size=2 * PART_BYTES)
        async with writer as file:
            buffer = bytearray()
            async for chunk in chunks:
                buffer += chunk
                if len(buffer) >= PART_BYTES:
                    await file.write(bytes(buffer))
                    buffer.clear()
            await file.write(bytes(buffer))

    async def get(self, key: UUID) -> AsyncIterator[bytes]:
        found = await obstore.get_async(self._store, key.hex)
        return _chunks(found)

    async def delete(self, key: UUID) -> None:
        try:
            await obstore.delete_async(self._store, key.hex)
        except FileNotFoundError:
            return

    async def sweep(self) -> None:
        """Do nothing: configure a lifecycle rule for incomplete uploads in the store."""


async def _chunks(found: obstore.GetResult) -> AsyncIterator[bytes]:
    async for chunk in found.stream(min_chunk_size=1 << 20):
        yield bytes(chunk)

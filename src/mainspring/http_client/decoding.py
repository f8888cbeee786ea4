"""Compressed content: gzip and deflate, in pieces of bounded size."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from mainspring.http_client.client import StreamedResponse
from mainspring.http_client.errors import HttpError

_GZIP, _DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
PIECE_BYTES = 256 * 1024


class InvalidContent(HttpError):
    """The content is not compressed as its header says."""


async def decoded(response: StreamedResponse) -> AsyncIterator[bytes]:
    """Yield the content, decompressed if `Content-Encoding` is gzip or deflate; other encodings are kept."""
    encoding = response.header("content-encoding").strip().lower()
    if encoding not in ("gzip", "x-gzip", "deflate"):
        async for chunk in response.chunks():
            yield chunk
        return
    inflate = zlib.decompressobj(_DEFLATE if encoding == "deflate" else _GZIP)
    begun = False
    async for chunk in response.chunks():
        if encoding == "deflate" and not begun and not _is_zlib(chunk):
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send deflate without its header
        begun = True
        try:
            while chunk and not inflate.eof:
                yield inflate.decompress(chunk, PIECE_BYTES)
                chunk = inflate.unconsumed_tail
        except zlib.error as error:
            raise InvalidContent(str(error)) from None


def _is_zlib(chunk: bytes) -> bool:
    return chunk[0] & 0x0F == 8

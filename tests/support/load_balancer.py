"""An HTTP load balancer: it sends each request to the next server in turn, whatever connection it came on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def load_balancer(urls: Sequence[str]) -> AsyncIterator[str]:
    turns = itertools.cycle(urls)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _message(reader)
                address = urlsplit(next(turns))
                from_server, to_server = await asyncio.open_connection(address.hostname, address.port)
                to_server.write(request)
                writer.write(await _message(from_server))
                to_server.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or response whose body has a declared length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
    return head + await reader.readexactly(int(length or 0))

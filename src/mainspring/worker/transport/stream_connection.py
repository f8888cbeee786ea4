"""One HTTP request whose body and response stay open: lines in both directions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import cast

import httptools

from mainspring.http_client.request import header_lines, request_line, split_url
from mainspring.http_client.route import api_tls, route_to
from mainspring.worker.transport.api_client import ApiAddress, ApiUnavailable

CONNECT_S = 15.0
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_PROBLEM_BYTES = 100_000


def is_direct(address: ApiAddress) -> bool:
    """Whether no proxy of the environment stands between worker and api: few of them pass streams on."""
    origin, _ = split_url(address.url)
    route = route_to(origin, env=os.environ)
    return not route.tunnel and not route.absolute


async def connect(
    address: ApiAddress, path: str, on_line: Callable[[bytes], None], on_end: Callable[[str], None]
) -> StreamConnection:
    """Begin a request to the api without its body. Raises ApiUnavailable."""
    origin, parts = split_url(address.url)
    tls = api_tls() if origin.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: StreamConnection(on_line, on_end), origin.name, origin.port, ssl=tls
            )
    except (OSError, TimeoutError) as error:
        raise ApiUnavailable(f"cannot connect to {origin.host}: {error!r}") from error
    headers = [("Host", origin.host), ("Transfer-Encoding", "chunked"), *address.headers.items()]
    connection.write_head(request_line("POST", parts.path.rstrip("/"), path) + header_lines(headers) + b"\r\n")
    return connection


class StreamConnection(asyncio.Protocol):
    """Calls `on_line` for each line of a successful response, and `on_end` once, when nothing more can arrive."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[str], None]) -> None:
        self.status = 0  # of the response, once it has begun
        self.problem = b""  # content of an unsuccessful response
        self._on_line = on_line
        self._on_end = on_end
        self._ended = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []  # of a line whose end has not arrived
        self._size = 0

    def write_head(self, head: bytes) -> None:
        assert self._transport is not None
        self._transport.write(head)

    def write(self, line: bytes) -> None:
        """Send a line as one chunk of the request body."""
        if not self._ended and self._transport is not None:
            self._transport.write(b"%x\r\n%b\n\r\n" % (len(line) + 1, line))

    def close(self) -> None:
        self._end("closed")
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._on_end(reason)

    # Called by the event loop ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not an HTTP response: {error}")
            self.close()

    def connection_lost(self, reason: Exception | None) -> None:
        self._end("the connection was closed" if reason is None else f"the connection broke: {reason}")

    # Called by the parser ----------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._ended:
            return
        if self.status != 200:
            self.problem = (self.problem + data)[:MAX_PROBLEM_BYTES]
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            if self._parts:
                line = b"".join([*self._parts, line])
                self._parts, self._size = [], 0
            self._on_line(line)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE_BYTES:
                self.close()

    def on_message_complete(self) -> None:
        self._end("the api ended the stream")
        self.close()

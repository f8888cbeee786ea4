"""A pool of keep-alive connections that only posts: a general HTTP client takes a millisecond per message.

A connection carries one request at a time. It is not reused after an error or a cancelled request. The parser is the
one the server uses.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

import httptools
import httpx2

CONNECT_S = 15.0
ANSWER_S = 75.0
MAX_IDLE = 8

Answer = tuple[int, bytes]

NO_ANSWER: tuple[type[Exception], ...] = (OSError, TimeoutError, httptools.HttpParserError, httpx2.TransportError)
"""Raised if there is no answer, or one that can't be parsed."""


class ConnectionPool:
    """Keeps up to `MAX_IDLE` idle connections to one api."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"invalid api URL {url!r}; use for example http://127.0.0.1:7171")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls: ssl.SSLContext | None = httpx2.create_ssl_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        lines = [f"Host: {parts.netloc.rpartition('@')[2]}", *(f"{name}: {value}" for name, value in headers.items())]
        self._head = "\r\n".join(lines).encode("latin-1")
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: bytes) -> Answer:
        """Return status and content of the answer, or raise one of `NO_ANSWER`."""
        connection = self._take_idle() or await self._connect()
        request = f"POST {self._prefix}{path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode("latin-1")
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await connection.send(request + self._head + b"\r\n\r\n" + body)
        except BaseException:
            connection.close()
            raise
        if connection.reusable and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            if (connection := self._idle.pop()).reusable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        async with asyncio.timeout(CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._host, self._port, ssl=self._tls
            )
        return connection


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self) -> None:
        self.reusable = True
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._answer: asyncio.Future[Answer] | None = None

    async def send(self, request: bytes) -> Answer:
        assert self._transport is not None and self.reusable
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body = []
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # data without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)

    def connection_lost(self, reason: Exception | None) -> None:
        self._fail(reason or ConnectionResetError("the connection was closed"))

    def _fail(self, reason: Exception) -> None:
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(reason)

    # Called by the parser ----------------------------------------------------------------------------

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), b"".join(self._body)))


def is_direct(url: str) -> bool:
    """Whether the environment has no proxy for this URL."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    if not proxies.get(parts.scheme) and not proxies.get("all"):
        return True
    return bool(urllib.request.proxy_bypass(parts.hostname or ""))

"""An HTTP/1.1 client for one server: a bounded pool of keep-alive connections.

A request on a reused connection may fail because the server closed it meanwhile. If no byte of the response had
arrived, it is sent once more on a new connection, provided that sending it twice does no harm: the method is
idempotent (GET, HEAD, OPTIONS, PUT, DELETE), or the caller says `repeatable`. Any other request is never repeated once
it was written, because the server may have processed it; the connection is checked right before it is written.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic

from mainspring.http_client.asyncio_network import AsyncNetwork
from mainspring.http_client.errors import ConnectFailed, ConnectionLost
from mainspring.http_client.network import Connection, Network, Resolve
from mainspring.http_client.request import header_lines, request_line, split_url
from mainspring.http_client.response import DATA, END, HEAD, Head, Response
from mainspring.http_client.route import Route, default_tls, route_to

CONNECT_S = 15.0
RESPONSE_S = 75.0
KEEP_ALIVE_S = 30.0
"""How long an idle connection is reused. Many servers close theirs after 60 s."""
MAX_CONNECTIONS = 64
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

Body = bytes | AsyncIterator[bytes]


class HttpClient:
    """Sends requests to the server of `url`, in order of arrival if all connections are in use.

    `headers` are sent with every request. `env` may name proxies and is the process environment by default.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        network: Network | None = None,
        env: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        max_connections: int = MAX_CONNECTIONS,
        connect_s: float = CONNECT_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        origin, parts = split_url(url)
        self._route = route_to(origin, env=os.environ if env is None else env)
        self._network = AsyncNetwork() if network is None else network
        self._tls = tls
        self._resolve = resolve
        self._max_connections = max_connections
        self._connect_s = connect_s
        self._keep_alive_s = keep_alive_s
        self._prefix = _prefix(self._route) + parts.path.rstrip("/")
        self._headers = header_lines([("Host", origin.host), *_proxy_headers(self._route), *headers.items()])
        self._idle: list[Connection] = []
        self._closed = False
        self._slots: AbstractAsyncContextManager[None] | None = None
        self._slots_of_long: AbstractAsyncContextManager[None] | None = None

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = RESPONSE_S,
        max_bytes: float = MAX_RESPONSE_BYTES,
        repeatable: bool = False,
        long: bool = False,
    ) -> Response:
        """Return the complete response. `timeout_s` is the longest silence of the server.

        `long` requests, which the server holds back on purpose, have as many connections of their own.
        """
        head = self._head(method, target, headers, None if body is None else len(body))
        data = head if body is None else head + body
        async with self._slot(long):
            connection = self._take_idle()
            if connection is not None:
                try:
                    return await self._exchange(connection, method, data, timeout_s, max_bytes)
                except ConnectionLost as error:
                    if error.responded or not (repeatable or method in IDEMPOTENT):
                        raise
            return await self._exchange(await self._connect(), method, data, timeout_s, max_bytes)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        body: Body | None = None,
        *,
        size: int | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = RESPONSE_S,
    ) -> AsyncIterator[StreamedResponse]:
        """Enter with the head of the response; its content is read in chunks.

        A body in chunks needs its `size`. Streams are not counted: as many are open as the caller opens.
        """
        head = self._head(method, target, headers, len(body) if isinstance(body, bytes) else size)
        self._renew_pool()
        connection = self._take_idle()
        sent = False
        if connection is not None:
            try:
                sent = await _begin(connection, method, head, body, timeout_s)
            except ConnectionLost as error:
                if error.responded or method not in IDEMPOTENT or not (body is None or isinstance(body, bytes)):
                    raise
                connection = None
        if connection is None:
            connection = await self._connect()
            sent = await _begin(connection, method, head, body, timeout_s)
        try:
            yield StreamedResponse(connection, timeout_s)
        except BaseException:
            connection.close()
            raise
        if sent:
            self._release(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections now, and those in use after their response."""
        self._closed = True
        self._drop_idle()

    async def sleep(self, seconds: float) -> None:
        """Wait as the network does: the task in an event loop, or the thread."""
        await self._network.sleep(seconds)

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _head(self, method: str, target: str, headers: Mapping[str, str] | None, size: int | None) -> bytes:
        lines = request_line(method, self._prefix, target) + self._headers
        if headers:
            lines += header_lines(headers)
        if size is None:
            return lines + (b"Content-Length: 0\r\n\r\n" if method in ("POST", "PUT", "PATCH") else b"\r\n")
        return lines + b"Content-Length: %d\r\n\r\n" % size

    def _slot(self, long: bool) -> AbstractAsyncContextManager[None]:
        self._renew_pool()
        slots = self._slots_of_long if long else self._slots
        assert slots is not None
        return slots

    def _renew_pool(self) -> None:
        """Begin with an empty pool in another event loop and after a fork."""
        if not self._network.is_current() or self._slots is None:
            self._drop_idle()
            self._slots = self._network.slots(self._max_connections)
            self._slots_of_long = self._network.slots(self._max_connections)

    def _take_idle(self) -> Connection | None:
        oldest = monotonic() - self._keep_alive_s
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            if connection.idle_since > oldest and connection.is_open():
                return connection
            connection.close()
        return None

    def _release(self, connection: Connection) -> None:
        parser = connection.parser
        if parser.complete and parser.keep_alive and not self._closed and len(self._idle) < self._max_connections:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    async def _exchange(
        self, connection: Connection, method: str, data: bytes, timeout_s: float, max_bytes: float
    ) -> Response:
        try:
            connection.parser.begin(max_bytes=max_bytes, bodiless=method == "HEAD")
            await connection.send(data, timeout_s=timeout_s)
            await connection.receive(END, timeout_s=timeout_s)
            response = connection.parser.response()
        except BaseException:
            connection.close()
            raise
        self._release(connection)
        return response

    async def _connect(self) -> Connection:
        route, connect_s = self._route, self._connect_s
        host, port = route.connect_to
        secure = route.origin.scheme == "https"
        tls = (self._tls or default_tls()) if secure else None
        addresses = [host] if self._resolve is None else await self._resolve(host, port)
        failure: OSError = OSError("no address")
        for address in addresses:
            try:
                if not route.tunnel:
                    return await self._network.connect((address, port), tls, route.origin.name, timeout_s=connect_s)
                connection = await self._network.connect((address, port), None, "", timeout_s=connect_s)
                return await self._tunnel(connection, tls)
            except OSError as error:
                failure = error
        raise ConnectFailed(f"cannot connect to {host}:{port}: {_reason(failure)}") from failure

    async def _tunnel(self, connection: Connection, tls: ssl.SSLContext | None) -> Connection:
        """Ask the proxy for a connection to the origin, then encrypt it."""
        origin = self._route.origin
        target = f"[{origin.name}]:{origin.port}" if ":" in origin.name else f"{origin.name}:{origin.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode("ascii")
        if self._route.proxy_auth is not None:
            head += header_lines({"Proxy-Authorization": self._route.proxy_auth})
        try:
            connection.parser.begin(bodiless=True)
            await connection.send(head + b"\r\n", timeout_s=self._connect_s)
            await connection.receive(END, timeout_s=self._connect_s)
            if connection.parser.status // 100 != 2:
                answer = f"{connection.parser.status} {connection.parser.reason.decode('latin-1')}".strip()
                raise ConnectFailed(f"the proxy refused a connection to {target}: {answer}")
            connection.parser = type(connection.parser)()
            assert tls is not None
            await connection.start_tls(tls, origin.name, timeout_s=self._connect_s)
        except BaseException:
            connection.close()
            raise
        return connection


class StreamedResponse(Head):
    """A response whose content is read as it arrives."""

    __slots__ = ("_connection", "_timeout_s")

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        parser = connection.parser
        super().__init__(parser.status, parser.reason, parser.headers)
        self._connection = connection
        self._timeout_s = timeout_s

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks as they arrive."""
        parser = self._connection.parser
        while True:
            await self._connection.receive(DATA, timeout_s=self._timeout_s)
            if not parser.chunks:
                return
            yield parser.take()

    async def read(self, max_bytes: float = math.inf) -> bytes:
        """Return the rest of the content, or its first `max_bytes`."""
        parts, size = [], 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size >= max_bytes:
                return b"".join(parts)[: int(max_bytes)]
        return b"".join(parts)


async def _begin(connection: Connection, method: str, head: bytes, body: Body | None, timeout_s: float) -> bool:
    """Send a request and read the head of the response. Return whether the whole body was sent."""
    try:
        connection.parser.begin(bodiless=method == "HEAD")
        if body is None or isinstance(body, bytes):
            await connection.send(head + (body or b""), timeout_s=timeout_s)
            sent = True
        else:
            sent = await _send_chunks(connection, head, body, timeout_s)
        await connection.receive(HEAD, timeout_s=timeout_s)
    except BaseException:
        connection.close()
        raise
    return sent


async def _send_chunks(connection: Connection, head: bytes, body: AsyncIterator[bytes], timeout_s: float) -> bool:
    """Send a body in chunks until its end, or until the server responds or closes the connection."""
    await connection.send(head, timeout_s=timeout_s)
    async for chunk in body:
        if connection.parser.received or connection.is_lost():
            return False
        await connection.send(chunk, timeout_s=timeout_s)
    return True


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno is None or error.errno < 0 or isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _prefix(route: Route) -> str:
    return f"http://{route.origin.host}" if route.absolute else ""


def _proxy_headers(route: Route) -> list[tuple[str, str]]:
    return [("Proxy-Authorization", route.proxy_auth)] if route.absolute and route.proxy_auth is not None else []

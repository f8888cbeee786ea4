"""HTTP requests and event streams: typed values in and out, problem documents as exceptions."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from mainspring import __version__
from mainspring.client.discovery import Server
from mainspring.client.own_writes import WRITTEN, OwnWrites
from mainspring.client.problems import Unreachable, problem, unexpected_response
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.http_client import (
    ConnectFailed,
    ConnectionLost,
    Head,
    HttpClient,
    HttpError,
    ResponseTooLarge,
    StreamedResponse,
)
from mainspring.http_client.events import ServerSentEvent, read_events
from mainspring.http_client.network import Network
from mainspring.http_client.route import tls_for

T = TypeVar("T")
Params = Mapping[str, str | int | Sequence[str] | None]

CONNECT_S = 5.0
RESPONSE_S = 30.0
STREAM_IDLE_S = 60.0
"""Read timeout of streams; a running server sends keep-alives well within it."""
RATE_LIMIT_RETRIES = 8
"""How often a rate-limited request is retried, each time after the `Retry-After` of the response."""
LONGEST_RETRY_AFTER_S = 10.0
LOST_RETRIES = 5
FIRST_BACKOFF_S = 0.1
"""A repeatable request whose connection broke is sent again for about 4 seconds, long enough for a restart."""
IDEMPOTENCY_KEY = "Idempotency-Key"
MAX_PROBLEM_BYTES = 1024 * 1024
JSON = {"Content-Type": "application/json"}


def new_key() -> str:
    """A key for one call: a request that is repeated with it creates nothing twice."""
    return os.urandom(16).hex()


class Transport:
    """The HTTP connections to one server. Close it with `close`."""

    def __init__(self, server: Server, *, network: Network | None = None, max_connections: int = 64) -> None:
        self.server = server
        headers = {"User-Agent": f"mainspring/{__version__}", "Accept": "application/json"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        self._http = HttpClient(
            server.url,
            headers,
            network=network,
            tls=tls_for(server.url),
            # Proxy environment variables are ignored for a server on this machine.
            env={} if server.is_local else None,
            max_connections=max_connections,
            connect_s=CONNECT_S,
        )
        self.sleep = self._http.sleep
        self._own_writes = OwnWrites()

    def close(self) -> None:
        self._http.close()

    async def request(
        self,
        response_type: type[T],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        wait_s: float = 0.0,
        repeatable: bool = False,
        creates: bool = False,
    ) -> T:
        """Send one request and decode the response. The server may delay the response by `wait_s`."""
        content = await self.send(
            method, path, params=params, body=body, wait_s=wait_s, repeatable=repeatable, creates=creates
        )
        return self.decode(response_type, content)

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        wait_s: float = 0.0,
        repeatable: bool = False,
        creates: bool = False,
    ) -> bytes:
        """Return the content of the response.

        `repeatable`: the server detects that it got the request twice. `creates`: it does so by an `Idempotency-Key`,
        which is new for each call. Such a request is repeated if its connection breaks.
        """
        content = None if body is None else encode(body)
        headers = self._own_writes.headers(None) if method == "GET" else None if body is None else JSON
        if creates:
            headers = {**(headers or {}), IDEMPOTENCY_KEY: new_key()}
        target = path if params is None else _with_query(path, params)
        rejected = lost = 0
        while True:
            try:
                response = await self._http.request(
                    method,
                    target,
                    content,
                    headers=headers,
                    timeout_s=RESPONSE_S + wait_s,
                    repeatable=repeatable or creates,
                    long=wait_s > 0,
                )
            except (ConnectionLost, ConnectFailed) as failure:
                # Once the response was lost, a server that restarts gets the request again.
                lost += lost > 0 or ((repeatable or creates) and isinstance(failure, ConnectionLost))
                if not 0 < lost <= LOST_RETRIES:
                    raise self._failed(failure) from None
                await self.sleep(FIRST_BACKOFF_S * 2 ** (lost - 1) * random.uniform(1, 1.5))
                continue
            except HttpError as failure:
                raise self._failed(failure) from None
            if response.status // 100 == 2:
                if method != "GET":
                    self._own_writes.note(response.header(WRITTEN))
                return response.body
            error = problem(self.server, response.status, response.header("content-type"), response.body)
            if error.code not in ("rate_limited", "too_many_streams") or rejected == RATE_LIMIT_RETRIES:
                raise error
            # A rejected request changed nothing, so any method may be retried. Jitter spreads the clients.
            await self.sleep(_retry_after(response) * random.uniform(1, 1.5))
            rejected += 1

    @asynccontextmanager
    async def stream(self, path: str, *, params: Params | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The response body in chunks."""
        async with self._open(_with_query(path, params or {}), {}) as response:
            yield response.chunks()

    def decode(self, response_type: type[T], content: str | bytes) -> T:
        try:
            return msgspec.json.decode(content, type=response_type)
        except msgspec.DecodeError as error:
            raise unexpected_response(self.server, f"an unexpected body ({error})") from None

    @asynccontextmanager
    async def events(
        self, path: str, *, params: Params | None = None, after: str = ""
    ) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        """Server-sent events after the id `after`. The context is entered once the stream is open."""
        headers = {"Last-Event-ID": after} if after and after.isascii() else {}
        async with self._open(_with_query(path, params or {}), headers) as response:
            kind = response.header("content-type")
            if kind.partition(";")[0].strip().lower() != "text/event-stream":
                raise unexpected_response(self.server, f"no event stream (the content type is {kind!r})")
            yield read_events(response.chunks())

    @asynccontextmanager
    async def _open(self, target: str, headers: dict[str, str]) -> AsyncIterator[StreamedResponse]:
        try:
            async with self._http.stream("GET", target, headers=headers, timeout_s=STREAM_IDLE_S) as response:
                if response.status // 100 != 2:
                    body = await response.read(MAX_PROBLEM_BYTES)
                    raise problem(self.server, response.status, response.header("content-type"), body)
                yield response
        except HttpError as error:
            raise self._failed(error) from None

    def _failed(self, error: HttpError) -> MainspringError:
        if isinstance(error, ResponseTooLarge):
            return unexpected_response(self.server, f"too much ({error})")
        return Unreachable(self.server, str(error))


class Connected:
    """What every group of client methods has: a server, and the transport to it."""

    def __init__(self, server: Server, *, network: Network | None = None, max_connections: int = 64) -> None:
        self.server = server
        self._transport = Transport(server, network=network, max_connections=max_connections)


class Reconnect:
    """Backoff between attempts to reach a server that restarts; gives up after `give_up_s`.

    A server that never responded is not retried.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]], *, give_up_s: float = 30.0) -> None:
        self._sleep = sleep
        self._give_up_s = give_up_s
        self._failures = 0
        self._since: float | None = None
        self._connected = False

    def connected(self) -> None:
        """Reset the backoff: the server has responded."""
        self._connected, self._failures, self._since = True, 0, None

    async def wait(self, error: Unavailable) -> None:
        """Sleep before the next attempt, or raise `error` once `give_up_s` have passed."""
        now = monotonic()
        self._since = now if self._since is None else self._since
        if not self._connected or now - self._since >= self._give_up_s:
            raise error
        await self._sleep(min(5.0, 0.1 * 2**self._failures))
        self._failures = min(self._failures + 1, 10)


def _with_query(path: str, params: Params) -> str:
    given = {name: value for name, value in params.items() if value not in (None, "", [], ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _retry_after(response: Head) -> float:
    header = response.header("retry-after")
    return min(float(header), LONGEST_RETRY_AFTER_S) if header.isdecimal() else 1.0

"""HTTP requests and event streams: typed values in and out, problem documents as exceptions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
import msgspec

from mainspring import __version__
from mainspring.client.discovery import Server
from mainspring.client.problems import Unreachable, problem, unexpected_response
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError, Unavailable

T = TypeVar("T")
Params = Mapping[str, str | int | Sequence[str] | None]

CONNECT_S = 5.0
RESPONSE_S = 30.0
STREAM_IDLE_S = 60.0
"""Read timeout of streams; a running server sends keep-alives well within it."""
RATE_LIMIT_RETRIES = 8
"""How often a rate-limited request is retried, each time after the `Retry-After` of the response."""
LONGEST_RETRY_AFTER_S = 10.0


class Transport:
    """The HTTP connections to one server. Close it with `aclose`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        headers = {"User-Agent": f"mainspring/{__version__}", "Accept": "application/json"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        self._http = httpx2.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=_timeout(RESPONSE_S),
            # Proxy environment variables are ignored for a server on this machine.
            trust_env=not server.is_local,
            # Loading certificates takes 0.1 s; plain HTTP does not need them.
            verify=server.url.startswith("https:"),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        response_type: type[T],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        wait_s: float = 0.0,
    ) -> T:
        """Send one request and decode the response. The server may delay the response by `wait_s`."""
        content = await self.send(method, path, params=params, body=body, wait_s=wait_s)
        return self.decode(response_type, content)

    async def send(
        self, method: str, path: str, *, params: Params | None = None, body: Any = None, wait_s: float = 0.0
    ) -> bytes:
        content = None if body is None else encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        retries = 0
        while True:
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=_given(params),
                    content=content,
                    headers=headers,
                    timeout=_timeout(RESPONSE_S + wait_s),
                )
            except httpx2.TransportError as failure:
                raise self._unreachable(failure) from None
            if response.is_success:
                return response.content
            error = problem(self.server, response.status_code, _content_type(response), response.content)
            if error.code != "rate_limited" or retries == RATE_LIMIT_RETRIES:
                raise error
            # A rejected request changed nothing, so any method may be retried. Jitter spreads the clients.
            await asyncio.sleep(_retry_after(response) * random.uniform(1, 1.5))
            retries += 1

    @asynccontextmanager
    async def stream(self, path: str, *, params: Params | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The response body in chunks."""
        try:
            async with self._http.stream(
                "GET", path, params=_given(params), timeout=_timeout(STREAM_IDLE_S)
            ) as response:
                if not response.is_success:
                    body = await response.aread()
                    raise problem(self.server, response.status_code, _content_type(response), body)
                yield response.aiter_bytes()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def decode(self, response_type: type[T], content: str | bytes) -> T:
        try:
            return msgspec.json.decode(content, type=response_type)
        except msgspec.DecodeError as error:
            raise unexpected_response(self.server, f"an unexpected body ({error})") from None

    @asynccontextmanager
    async def events(
        self, path: str, *, params: Params | None = None, after: str = ""
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Server-sent events after the id `after`. The context is entered once the stream is open."""
        headers = {"Last-Event-ID": after} if after else {}
        timeout = _timeout(STREAM_IDLE_S)
        try:
            async with self._http.sse(
                path, params=_given(params), headers=headers, timeout=timeout, max_event_size=None
            ) as source:
                response = source.response
                if not response.is_success:
                    body = await response.aread()
                    raise problem(self.server, response.status_code, _content_type(response), body)
                yield aiter(source)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: httpx2.TransportError) -> MainspringError:
        if isinstance(error, httpx2.SSEError):
            return unexpected_response(self.server, f"no event stream ({error})")
        return Unreachable(self.server, str(error) or type(error).__name__)


class Connected:
    """What every group of client methods has: a server, and the transport to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._transport = Transport(server)


class Reconnect:
    """Backoff between attempts to reach a server that restarts; gives up after `give_up_s`.

    A server that never responded is not retried.
    """

    def __init__(self, give_up_s: float = 30.0) -> None:
        self._give_up_s = give_up_s
        self._failures = 0
        self._since: float | None = None
        self._connected = False

    def connected(self) -> None:
        """Reset the backoff: the server has responded."""
        self._connected, self._failures, self._since = True, 0, None

    async def wait(self, error: Unavailable) -> None:
        """Sleep before the next attempt, or raise `error` once `give_up_s` have passed."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not self._connected or now - self._since >= self._give_up_s:
            raise error
        await asyncio.sleep(min(5.0, 0.1 * 2**self._failures))
        self._failures = min(self._failures + 1, 10)


def _timeout(read_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(read_s, connect=CONNECT_S)


def _given(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value not in (None, "", [], ())}


def _retry_after(response: httpx2.Response) -> float:
    header = str(response.headers.get("retry-after", ""))
    return min(float(header), LONGEST_RETRY_AFTER_S) if header.isdecimal() else 1.0


def _content_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", ""))

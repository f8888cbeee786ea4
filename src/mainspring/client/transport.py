"""Requests and event streams over HTTP: typed values in and out, problem documents as errors."""

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
from mainspring.client.problems import Unreachable, not_ours, problem
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError, Unavailable

T = TypeVar("T")
Params = Mapping[str, str | int | Sequence[str] | None]

CONNECT_S = 5.0
ANSWER_S = 30.0
# A living server says something on every stream well within this time.
SILENCE_S = 60.0
WAITS = 8
"""So often a request is held back when the server says that there are too many, each time for as long as it says."""
LONGEST_WAIT_S = 10.0


class Transport:
    """One server's connections; close it with `aclose`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        headers = {"User-Agent": f"mainspring/{__version__}", "Accept": "application/json"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        self._http = httpx2.AsyncClient(
            base_url=server.url,
            headers=headers,
            timeout=_timeout(ANSWER_S),
            # Proxies of the environment are not for this machine's own server.
            trust_env=not server.is_local,
            # Loading certificates takes a tenth of a second, which plain HTTP needs not spend.
            verify=server.url.startswith("https:"),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def ask(
        self,
        answer: type[T],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        wait_s: float = 0.0,
    ) -> T:
        """Sends one request, which the server may hold for `wait_s`, and reads the answer as `answer`."""
        content = await self.send(method, path, params=params, body=body, wait_s=wait_s)
        return self.read(answer, content)

    async def send(
        self, method: str, path: str, *, params: Params | None = None, body: Any = None, wait_s: float = 0.0
    ) -> bytes:
        content = None if body is None else encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        waits = 0
        while True:
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=_given(params),
                    content=content,
                    headers=headers,
                    timeout=_timeout(ANSWER_S + wait_s),
                )
            except httpx2.TransportError as error:
                raise self._unreachable(error) from None
            if response.is_success:
                return response.content
            wrong = problem(self.server, response.status_code, _content_type(response), response.content)
            if wrong.code != "rate_limited" or waits == WAITS:
                raise wrong
            # Nothing was done, so any request may be sent again; not all of a crowd at the same moment.
            await asyncio.sleep(_retry_after(response) * random.uniform(1, 1.5))
            waits += 1

    @asynccontextmanager
    async def pieces(self, path: str, *, params: Params | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The answer, piece by piece."""
        try:
            async with self._http.stream("GET", path, params=_given(params), timeout=_timeout(SILENCE_S)) as response:
                if not response.is_success:
                    body = await response.aread()
                    raise problem(self.server, response.status_code, _content_type(response), body)
                yield response.aiter_bytes()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def read(self, answer: type[T], content: str | bytes) -> T:
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise not_ours(self.server, f"something else than expected ({error})") from None

    @asynccontextmanager
    async def events(
        self, path: str, *, params: Params | None = None, after: str = ""
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """A stream of server-sent events, from the one after the id `after`; entered once it is open."""
        headers = {"Last-Event-ID": after} if after else {}
        timeout = _timeout(SILENCE_S)
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
            return not_ours(self.server, f"something else than a stream ({error})")
        return Unreachable(self.server, str(error) or type(error).__name__)


class Patience:
    """Bridges a restart of the server: pauses before another try, and gives up after `give_up_s`.

    A server that was never met is not waited for.
    """

    def __init__(self, give_up_s: float = 30.0) -> None:
        self._give_up_s = give_up_s
        self._tries = 0
        self._since: float | None = None
        self._met = False

    def met(self) -> None:
        self._met, self._tries, self._since = True, 0, None

    async def pause(self, error: Unavailable) -> None:
        """Waits a moment, or raises `error` when enough time was spent on it."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not self._met or now - self._since >= self._give_up_s:
            raise error
        await asyncio.sleep(min(5.0, 0.1 * 2**self._tries))
        self._tries = min(self._tries + 1, 10)


def _timeout(answer_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(answer_s, connect=CONNECT_S)


def _given(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value not in (None, "", [], ())}


def _retry_after(response: httpx2.Response) -> float:
    said = str(response.headers.get("retry-after", ""))
    return min(float(said), LONGEST_WAIT_S) if said.isdecimal() else 1.0


def _content_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", ""))

"""What `HttpClient` needs from a network. `AsyncNetwork` is for coroutines, `BlockingNetwork` for threads."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from mainspring.http_client.response import ResponseParser

Address = tuple[str, int]
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses to connect to for a host and port."""


class Connection(Protocol):
    """One connection. It carries one request at a time and is not used again after an error."""

    parser: ResponseParser
    idle_since: float

    def is_open(self) -> bool:
        """Whether another request may be sent: nothing was received, and the other side has not closed it."""
        ...

    def is_lost(self) -> bool:
        """Whether sending more is useless."""
        ...

    async def send(self, data: bytes, *, timeout_s: float) -> None:
        """Send bytes. A lost connection is raised by `receive`: the server may have responded before it closed."""
        ...

    async def receive(self, what: int, *, timeout_s: float) -> None:
        """Feed the parser until it has `what`: HEAD, DATA or END. `timeout_s` is the longest silence."""
        ...

    async def start_tls(self, context: ssl.SSLContext, name: str, *, timeout_s: float) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Opens connections."""

    def slots(self, count: int) -> AbstractAsyncContextManager[None]:
        """Return a semaphore that serves waiters in order."""
        ...

    def is_current(self) -> bool:
        """Whether connections opened before may be used here: not after a fork, nor in another event loop."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def connect(self, address: Address, tls: ssl.SSLContext | None, name: str, *, timeout_s: float) -> Connection:
        """Open a connection, encrypted if `tls` is given; the certificate must be for `name`. Raises `OSError`."""
        ...

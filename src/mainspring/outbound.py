"""HTTP requests to user-supplied URLs: each host is resolved once, checked, and connected by address.

The check runs where connections are made, so it covers redirects and DNS rebinding. TLS and the `Host` header use the
name in the URL. Proxy environment variables are ignored: a proxy would resolve the name again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote

from mainspring.domain.address import Network, read_address, refusal
from mainspring.domain.errors import MainspringError
from mainspring.http_client import HttpClient, StreamedResponse
from mainspring.http_client.request import split_url

CONNECT_S = 10.0
KEEP_ALIVE_S = 5.0
MAX_IDLE = 20
"""Servers whose connections are kept; beyond them, all idle connections are closed."""
_SAFE = "!#$%&'()*+,/:;=?@[]~"  # an escape such as %2F stays as it is


class RefusedAddress(MainspringError):
    """Requests to this address are not allowed by the operator."""

    code = "refused_address"


class UnknownHost(MainspringError):
    """The host name cannot be resolved."""

    code = "unknown_host"


class Outbound:
    """Sends requests to allowed addresses only. It follows no redirects and stores no cookies."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._clients: dict[str, HttpClient] = {}

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes | None, *, headers: Mapping[str, str], timeout_s: float
    ) -> AsyncIterator[StreamedResponse]:
        """Enter with the head of the response. `timeout_s` is the longest silence of the server."""
        origin, parts = split_url(url)
        server = f"{origin.scheme}://{origin.host}"
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        client = self._clients.get(server)
        if client is None:
            if len(self._clients) >= MAX_IDLE:
                self.close()
            client = self._clients[server] = HttpClient(
                server, {}, env={}, resolve=self._resolve, connect_s=CONNECT_S, keep_alive_s=KEEP_ALIVE_S
            )
        async with client.stream(method, target, body, headers=headers, timeout_s=timeout_s) as response:
            yield response

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def _resolve(self, host: str, port: int) -> list[str]:
        return await addresses(host, port, self._allowed)


async def addresses(host: str, port: int, allowed: Sequence[Network]) -> list[str]:
    """Return the allowed addresses of a host in the resolver's order; raise if there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnknownHost(f"cannot resolve host {host!r}: {error.strerror or error}") from None
    permitted, refused = [], []
    for text in dict.fromkeys(str(info[4][0]) for info in found):
        why = refusal(read_address(text), allowed)
        if why is None:
            permitted.append(text)
        else:
            refused.append(f"{text} ({why})")
    if not permitted:
        raise RefusedAddress(
            f"requests to {host} are not allowed: it resolves to {', '.join(refused)};"
            " allow it with --allow-net CIDR (mainspring worker for tasks, mainspring serve for notifications)"
        )
    return permitted

"""HTTP requests to user-supplied URLs: each host is resolved once, checked, and connected by address.

The check runs where connections are made, so it covers redirects and DNS rebinding. TLS and the `Host` header use the
name in the URL. Proxy environment variables are ignored: a proxy would resolve the name again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence

import httpcore2
import httpx2

from mainspring.domain.address import Network, read_address, refusal
from mainspring.domain.errors import MainspringError

CONNECT_S = 10.0


class RefusedAddress(MainspringError):
    """Requests to this address are not allowed by the operator."""

    code = "refused_address"


class UnknownHost(MainspringError):
    """The host name cannot be resolved."""

    code = "unknown_host"


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in await addresses(host, port, self._allowed):
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure


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


class _Transport(httpx2.AsyncHTTPTransport):
    def __init__(self, allowed: Sequence[Network]) -> None:
        super().__init__(verify=False, trust_env=False)  # its pool is replaced before it is used
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_CheckedBackend(allowed),
        )


def client(allowed: Sequence[Network]) -> httpx2.AsyncClient:
    """Return a client that connects to allowed addresses only. It follows no redirects and stores no cookies."""
    return httpx2.AsyncClient(transport=_Transport(allowed), trust_env=False, follow_redirects=False, timeout=None)

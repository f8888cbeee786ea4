"""Calls to addresses that users name: resolved once, checked, and connected to that very address.

The check sits where connections are made, so redirects and renamed hosts meet it too; name, TLS and the `Host`
header stay those of the URL. Proxies of the environment are not used: they would resolve the name again.
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
    """The operator does not let tasks call this address."""

    code = "refused_address"


class UnknownHost(MainspringError):
    """The name does not resolve."""

    code = "unknown_host"


class _Checked(httpcore2.AsyncNetworkBackend):
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
    """The addresses of a host that may be called, in the resolver's order."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnknownHost(f"the name {host!r} can't be resolved: {error.strerror or error}") from None
    fine, refused = [], []
    for text in dict.fromkeys(str(info[4][0]) for info in found):
        why = refusal(read_address(text), allowed)
        if why is None:
            fine.append(text)
        else:
            refused.append(f"{text} ({why})")
    if not fine:
        raise RefusedAddress(
            f"{host} is {', '.join(refused)}, which tasks may not call;"
            " an operator can allow it with --allow-net CIDR (of mainspring worker, or of mainspring serve for notices)"
        )
    return fine


class _Transport(httpx2.AsyncHTTPTransport):
    def __init__(self, allowed: Sequence[Network]) -> None:
        super().__init__(verify=False, trust_env=False)  # its pool is replaced, before it is used, by ours
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Checked(allowed),
        )


def client(allowed: Sequence[Network]) -> httpx2.AsyncClient:
    """A client that reaches only what may be reached. It follows no redirect by itself and keeps no cookies."""
    return httpx2.AsyncClient(transport=_Transport(allowed), trust_env=False, follow_redirects=False, timeout=None)

"""The clients of this process: one for blocking calls, and one for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import cache
from weakref import WeakKeyDictionary

from mainspring.client import AsyncClient, Client
from mainspring.http_client import finish

_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None, None]]]
_by_loop = WeakKeyDictionary()


@cache
def client() -> Client:
    """Return the client of this process; it is safe to use after a fork."""
    return Client()


async def async_client() -> AsyncClient:
    """Return the client of the running event loop. Its connections are closed when the loop shuts down."""
    loop = asyncio.get_running_loop()
    if (found := _by_loop.get(loop)) is None:
        made = AsyncClient()
        found = _by_loop[loop] = made, _closing(made)
        await anext(found[1])
    return found[0]


def close_clients() -> None:
    """Close the connections; the next call discovers the server again."""
    if client.cache_info().currsize:
        client().close()
        client.cache_clear()
    for loop in list(_by_loop):
        finish(_by_loop.pop(loop)[0].aclose())


async def _closing(client: AsyncClient) -> AsyncGenerator[None, None]:
    """Close a client when the event loop ends its asynchronous generators: the one hook that loops have for that."""
    try:
        yield
    finally:
        await client.aclose()

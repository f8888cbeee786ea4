"""Run commands that call the server's API."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from mainspring import wire
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Output

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

P = ParamSpec("P")
T = TypeVar("T")

PAGE_SIZE = 500


def connected(function: Callable[Concatenate[AsyncClient, Output, P], Awaitable[None]]) -> Callable[P, None]:
    """Turn a coroutine function into a command; it receives a client and the output before its parameters."""

    @server_options(hidden=True)
    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        options = current()

        async def call() -> None:
            # Imported late: loading the HTTP library would slow down --help.
            from mainspring.client import AsyncClient

            async with AsyncClient(options.url, options.token) as client:
                await function(client, Output(options.output), *args, **kwargs)

        asyncio.run(call())

    return run


async def gather(fetch: Callable[[int, str | None], Awaitable[wire.Page[T]]], limit: int) -> wire.Page[T]:
    """Fetch up to `limit` items, from as many pages as that takes."""
    items: list[T] = []
    cursor: str | None = None
    while True:
        page = await fetch(min(limit - len(items), PAGE_SIZE), cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None or len(items) >= limit:
            return wire.Page(items=items, next_cursor=cursor)

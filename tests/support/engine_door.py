"""A TCP proxy in front of an engine: `cut` ends its connections and refuses new ones until `heal`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit


class EngineDoor:
    """`url` leads through it to the engine at the given URL."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.port = 0

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._target._replace(netloc=f"127.0.0.1:{self.port}"))
        return server

    def cut(self) -> None:
        self._refuses = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        self._refuses = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            from_engine, to_engine = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, to_engine)
        self._writers.update(both)
        try:
            await asyncio.gather(_pass(reader, to_engine), _pass(from_engine, writer))
        finally:
            self._writers.difference_update(both)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def engine_door(url: str) -> AsyncIterator[EngineDoor]:
    door = EngineDoor(url)
    server = await door.open()
    try:
        yield door
    finally:
        door.cut()
        server.close()

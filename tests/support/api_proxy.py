"""A TCP proxy between workers and an api process that breaks connections in the ways that networks and proxies do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import urlsplit

CHUNK = 65536
STREAM = b"POST /api/v1/worker/stream "

Direction = Literal["up", "down"]


class ApiProxy:
    """`url` leads through it.

    `cut` ends a connection in the middle of what it passes on. `swallow` passes nothing on until `heal`; with `strand`
    only new connections are passed on. `resets` refuses streams, `holds` keeps back what they send in one direction.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._cut: tuple[Direction, int] | None = None
        self._server: asyncio.Server | None = None
        self.delay_s = 0.0
        self.kept = 0  # pieces of data that waited for `heal`
        self.resets = False
        self.holds: Direction | None = None
        self.streams = 0
        self.url = ""

    async def run(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, direction: Direction, after: int) -> None:
        """End the connection that passes the byte with this number, counted from now, in this direction."""
        self._cut = direction, after

    @property
    def has_cut(self) -> bool:
        return self._cut is None

    def swallow(self) -> None:
        self._passing.clear()

    def strand(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()

    def heal(self) -> None:
        self._passing.set()

    def break_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def end(self) -> None:
        assert self._server is not None
        self._server.close()
        self.break_all()
        for task in list(self._links):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        ends = [writer]
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                first = await reader.read(CHUNK)
                is_stream = first.startswith(STREAM)
                self.streams += is_stream
                if is_stream and self.resets:
                    return
                back, there = await asyncio.open_connection(self._target.hostname, self._target.port)
                ends.append(there)
                self._writers.add(there)
                holds, passing = self.holds if is_stream else None, self._passing
                await asyncio.gather(
                    self._pass("up", first, reader, there, passing, held=holds == "up"),
                    self._pass("down", b"", back, writer, passing, held=holds == "down"),
                )
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()
            self._links.discard(task)

    async def _pass(
        self,
        direction: Direction,
        data: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passing: asyncio.Event,
        *,
        held: bool,
    ) -> None:
        data = data or await reader.read(CHUNK)
        while data:
            if self.delay_s:
                await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=self.delay_s)
            self.kept += not passing.is_set()
            await passing.wait()
            if not held:
                whole = self._uncut(direction, data)
                writer.write(data[:whole])
                await writer.drain()
                if whole < len(data):
                    raise ConnectionResetError("cut")
            data = await reader.read(CHUNK)
        raise ConnectionResetError("one side has ended")

    def _uncut(self, direction: Direction, data: bytes) -> int:
        """Return how much of the data passes."""
        if self._cut is None or self._cut[0] != direction:
            return len(data)
        after = self._cut[1]
        if after >= len(data):
            self._cut = direction, after - len(data)
            return len(data)
        self._cut = None
        return after


@contextlib.asynccontextmanager
async def api_proxy(url: str) -> AsyncIterator[ApiProxy]:
    proxy = ApiProxy(url)
    await proxy.run()
    try:
        yield proxy
    finally:
        proxy.end()

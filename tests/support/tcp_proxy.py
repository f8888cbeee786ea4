"""Proxies between a process and PostgreSQL or an engine that can close connections, or silently drop their data."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

CHUNK = 65536
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""PostgreSQL's message that a transaction is committed."""


class Proxy:
    """`url` leads through it. `cut` ends all connections and refuses new ones, `swallow` just passes no bytes on.

    `strand` lets new connections through again, but those from before go on leading nowhere. With `delay_s` every
    answer of the server takes longer. `lose_commits` ends as many connections instead of passing on that a commit
    succeeded; `lost_commits` counts them.
    """

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        name = f".s.PGSQL.{query['port'][0]}"
        self._target = Path(query["host"][0]) / name
        self._socket = folder / name
        self.url = urlunsplit(parts._replace(query=f"host={quote(str(folder))}&port={query['port'][0]}"))
        self._open_all()

    def _open_all(self) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._refuses = False
        self.delay_s = 0.0
        self.lose_commits = 0
        self.lost_commits = 0

    async def run(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._accept, self._socket)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._target)

    def cut(self) -> None:
        self._refuses = True
        for writer in list(self._writers):
            writer.transport.abort()

    def swallow(self) -> None:
        self._open.clear()

    def strand(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def heal(self) -> None:
        self._refuses = False
        self._open.set()

    def end(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if not self._refuses:
                    back, there = await self._connect()
                    self._writers.add(there)
                    passing = self._open
                    await asyncio.gather(self._pass(reader, there, passing), self._answer(back, writer, passing))
        finally:
            for end in filter(None, (writer, there)):
                self._writers.discard(end)
                end.transport.abort()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
        while data := await reader.read(CHUNK):
            await passing.wait()
            if self.delay_s:
                await later(self.delay_s)
            if self.lose_commits and COMMITTED in data:
                self.lose_commits -= 1
                self.lost_commits += 1
                raise ConnectionResetError("the answer to a commit is lost")
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has ended")

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
        while data := await reader.read(CHUNK):
            await passing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has ended")


class PortProxy(Proxy):
    """The same between two ports of this machine."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target_port = port, target
        self._open_all()

    async def run(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._target_port)


async def later(delay_s: float) -> None:
    """Return after a time: the delay is the fault, not a wait for something."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():  # cancelled, and its task has not run since
            over.set_result(None)

    timer = loop.call_later(delay_s, end)
    try:
        await over
    finally:
        timer.cancel()


@contextlib.asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        door = Proxy(url, Path(folder))
        server = await door.run()
        try:
            yield door
        finally:
            server.close()
            door.end()

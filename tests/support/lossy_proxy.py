"""A proxy in front of an HTTPS server that can lose the answers of requests which the server has carried out."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress

_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)")


class LossyProxy:
    """Listens for plain HTTP. One request per connection; `lose` names the next answers to lose, by method and path."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._own_port = 0
        self._server: asyncio.Server | None = None
        self.lose: list[re.Pattern[bytes]] = []
        self.lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._own_port}"

    async def start(self) -> None:
        """Accept connections; after `stop` again, on the same port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._own_port)
        self._own_port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await self._pass_on(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        upstream, out = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
        try:
            out.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1) + body)
            loses = next((each for each in self.lose if each.match(head)), None)
            if loses is not None:
                self.lose.remove(loses)
                await upstream.read()
                self.lost += 1
                return
            while data := await upstream.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            out.transport.abort()

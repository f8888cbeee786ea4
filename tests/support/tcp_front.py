"""One address in front of several servers on loopback: each connection goes to the newest server that accepts it."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class TcpFront:
    """`targets` are ports, and may change; connections that are open stay with their server."""

    def __init__(self) -> None:
        self.targets: list[int] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> TcpFront:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            for port in reversed(self.targets):
                with contextlib.suppress(OSError):
                    from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
                    await asyncio.gather(_pass(reader, to_server), _pass(from_server, writer))
                    return
        finally:
            self._tasks.discard(task)
            writer.close()


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass on what is read; the end of one direction ends the other."""
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()

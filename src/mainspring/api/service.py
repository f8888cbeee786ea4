"""Serves the application over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from mainspring.domain.errors import MainspringError


class PortTaken(MainspringError):
    code = "port_taken"


class _Server(uvicorn.Server):
    """Leaves signals to the program: it drains first and stops this server last."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Listens from `start` on; `drain` lets open requests end."""

    def __init__(self, app: Any, *, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server = _Server(
            uvicorn.Config(
                app, loop="none", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
                server_header=False, timeout_keep_alive=75, timeout_graceful_shutdown=5, backlog=2048,
            )
        )  # fmt: skip
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        self._socket = self._bind()
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="http")

    async def ready(self) -> None:
        while not self._server.started:
            assert self._task is not None
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)

    async def drain(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=10)

    async def stop(self) -> None:
        await self.drain()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self._host, self._port))
        except OSError as error:
            sock.close()
            raise PortTaken(
                f"can't listen on {self._host}:{self._port}: {error.strerror}."
                " Choose another port with --port or MAINSPRING_PORT"
            ) from None
        return sock

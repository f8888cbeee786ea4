"""The HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.domain.errors import MainspringError
from mainspring.service import Service

log = structlog.get_logger()

BACKLOG = 4096
"""Listen backlog: a fleet that lost its server reconnects all at once. The kernel may cap it."""


class PortTaken(MainspringError):
    code = "port_taken"


class _Server(uvicorn.Server):
    """Leaves signals to the program, which drains first and stops this server last."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class KeepAliveLimit:
    """ASGI middleware that closes connections after each response while more than `limit` are open.

    A worker has one connection for long polls and one for heartbeats. With many workers and few file descriptors,
    heartbeats reconnect each time, so that no worker is refused for lack of a descriptor.
    """

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._warned = False
        self.connections: set[Any] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.connections) <= self._limit:
            await self._app(scope, receive, send)
            return
        if not self._warned:
            self._warned = True
            log.warning(
                "keep_alive.limited",
                connections=len(self.connections),
                hint="raise the limit of open files (ulimit -Hn) or add an api process",
            )

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_and_close)


class HttpServer(Service):
    """Listens from `start` on; `drain` waits for open requests to finish."""

    def __init__(self, app: Any, *, host: str, port: int, files: int | None = None) -> None:
        self._host, self._port = host, port
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
        limited = KeepAliveLimit(app, limit=files * 17 // 20)
        self._server = _Server(
            uvicorn.Config(
                limited,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=5,
                backlog=BACKLOG,
                # Responds 503 beyond this: database connections and artifacts need file descriptors too.
                limit_concurrency=files * 19 // 20,
            )
        )
        limited.connections = self._server.server_state.connections
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
                f"cannot listen on {self._host}:{self._port}: {error.strerror};"
                " choose another port with --port or MAINSPRING_PORT"
            ) from None
        return sock

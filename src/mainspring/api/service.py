"""Serves the application over HTTP."""

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
"""A fleet that lost its server comes back all at once; the kernel takes what it allows of this."""


class PortTaken(MainspringError):
    code = "port_taken"


class _Server(uvicorn.Server):
    """Leaves signals to the program: it drains first and stops this server last."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Crowd:
    """Keeps connections while there is room for more; beyond that each is closed with its answer.

    A worker has one connection that waits and one that beats. With many workers and few files allowed, those that beat
    come anew each time, so that none is turned away for want of a file.
    """

    def __init__(self, app: ASGIApp, *, room: int) -> None:
        self._app = app
        self._room = room
        self._told = False
        self.connections: set[Any] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.connections) <= self._room:
            await self._app(scope, receive, send)
            return
        if not self._told:
            self._told = True
            log.warning(
                "many connections for the open files allowed: not all are kept between requests",
                connections=len(self.connections),
                hint="raise the hard limit (ulimit -Hn), or add an api process",
            )

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_last)


class HttpServer(Service):
    """Listens from `start` on; `drain` lets open requests end."""

    def __init__(self, app: Any, *, host: str, port: int, files: int | None = None) -> None:
        self._host, self._port = host, port
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
        crowd = Crowd(app, room=files * 17 // 20)
        self._server = _Server(
            uvicorn.Config(
                crowd,
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
                # Beyond this it answers 503: the database and the artifacts need files as well.
                limit_concurrency=files * 19 // 20,
            )
        )
        crowd.connections = self._server.server_state.connections
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

"""The HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.api.connection import ClientConnection, ConnectionLimits, Strangers
from mainspring.api.problem import problem
from mainspring.api.tls import CHECK_S, ServerTls, StrictTransport, TlsFiles
from mainspring.domain.errors import MainspringError
from mainspring.process import open_file_limit
from mainspring.service import Loops, Service

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
    heartbeats reconnect each time, so that no worker is refused for lack of a descriptor. From `most` on, requests are
    refused: database connections and artifacts need file descriptors too.
    """

    def __init__(self, app: ASGIApp, *, limit: int, most: int) -> None:
        self._app = app
        self._limit = limit
        self._most = most
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

        if len(self.connections) >= self._most:
            refused = problem(503, "too_many_connections", "this api process has no connection to spare; try again")
            await refused(scope, receive, send_and_close)
            return
        await self._app(scope, receive, send_and_close)


class HttpServer(Service):
    """Listens from `start` on; `drain` waits for open requests to finish."""

    def __init__(
        self,
        app: Any,
        *,
        host: str,
        port: int,
        files: int | None = None,
        limits: ConnectionLimits | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._host, self._port = host, port
        self._tls = None if tls is None else ServerTls(tls)
        self._loops = Loops("http")
        if tls is not None:
            app = StrictTransport(app)
        files = open_file_limit() if files is None else files
        limited = KeepAliveLimit(app, limit=files * 17 // 20, most=files * 19 // 20)
        self.strangers = Strangers(limits or ConnectionLimits().for_files(files))
        proxies = [str(network) for network in self.strangers.limits.trusted_proxies]
        self._server = _Server(
            uvicorn.Config(
                limited,
                loop="none",
                http=cast(type[asyncio.Protocol], partial(ClientConnection, strangers=self.strangers)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=5,
                backlog=BACKLOG,
                # X-Forwarded-For and X-Forwarded-Proto count only from configured proxies. uvicorn would trust
                # loopback, and whatever FORWARDED_ALLOW_IPS says.
                proxy_headers=bool(proxies),
                forwarded_allow_ips=proxies,
            )
        )
        self._server.config.load()
        self._server.config.ssl = None if self._tls is None else self._tls.context
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
        if self._tls is not None:
            self._loops.forever("reload certificates", self._reload)

    async def _reload(self) -> None:
        assert self._tls is not None
        await asyncio.sleep(CHECK_S)
        self._tls.reload()

    async def ready(self) -> None:
        while not self._server.started:
            assert self._task is not None
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)

    async def drain(self) -> None:
        await self._loops.stop()
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

"""Connections for threads. The coroutines here never suspend, so `finish` runs them without an event loop."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar

from mainspring.http_client.errors import ConnectionLost, TimedOut
from mainspring.http_client.network import Address
from mainspring.http_client.response import ResponseParser

T = TypeVar("T")
RECEIVE_BYTES = 256 * 1024


def finish(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends: one of an `HttpClient` on a `BlockingNetwork`."""
    try:
        call.send(None)
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    call.close()
    raise RuntimeError("this call needs an event loop")


class BlockingNetwork:
    """Opens blocking connections; safe to share between threads and across forks."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def slots(self, count: int) -> AbstractAsyncContextManager[None]:
        return _Slots(count)

    def is_current(self) -> bool:
        pid = os.getpid()
        current, self._pid = self._pid == pid, pid
        return current

    async def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))  # noqa: ASYNC251 - it blocks its thread on purpose

    async def connect(
        self, address: Address, tls: ssl.SSLContext | None, name: str, *, timeout_s: float
    ) -> BlockingConnection:
        connection = BlockingConnection(socket.create_connection(address, timeout_s))
        try:
            if tls is not None:
                await connection.start_tls(tls, name, timeout_s=timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection


class BlockingConnection:
    """One keep-alive connection, used by one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = ResponseParser()
        self.idle_since = 0.0
        self._socket = sock
        self._timeout_s: float | None = sock.gettimeout()
        self._ready = select.poll()
        self._ready.register(sock, select.POLLIN)
        self._open = True

    def is_open(self) -> bool:
        return self._open and not self._ready.poll(0)

    def is_lost(self) -> bool:
        return not self._open

    async def send(self, data: bytes, *, timeout_s: float) -> None:
        self._set_timeout(timeout_s)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            self._open = False
            raise TimedOut(f"the server did not read the request within {timeout_s:g} s") from None
        except OSError:
            self._open = False

    async def receive(self, what: int, *, timeout_s: float) -> None:
        parser = self.parser
        if not parser.has(what):
            self._set_timeout(timeout_s)
        while not parser.has(what):
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise TimedOut(f"no response within {timeout_s:g} s") from None
            except OSError as error:
                raise ConnectionLost(f"the connection broke: {error}", responded=parser.received) from None
            if data:
                parser.feed(data)
            else:
                self._open = False
                parser.finish()

    async def start_tls(self, context: ssl.SSLContext, name: str, *, timeout_s: float) -> None:
        self._set_timeout(timeout_s)
        self._socket = context.wrap_socket(self._socket, server_hostname=name)
        self._ready = select.poll()
        self._ready.register(self._socket, select.POLLIN)

    def close(self) -> None:
        self._open = False
        with suppress(OSError):
            self._socket.close()

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            self._timeout_s = timeout_s
            self._socket.settimeout(timeout_s)


class _Slots(AbstractAsyncContextManager[None]):
    """A semaphore between threads."""

    def __init__(self, count: int) -> None:
        self._semaphore = threading.Semaphore(count)

    async def __aenter__(self) -> None:
        self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()

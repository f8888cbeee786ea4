"""Connections for coroutines. A response costs two wake-ups of the event loop and no timer."""

from __future__ import annotations

import asyncio
import select
import ssl
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import cast

from mainspring.http_client.errors import ConnectionLost, HttpError, TimedOut
from mainspring.http_client.network import Address
from mainspring.http_client.response import DATA, END, ResponseParser

BUFFER_BYTES = 256 * 1024
"""Content of a stream that is kept before reading pauses."""


class AsyncNetwork:
    """Opens connections in the running event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def slots(self, count: int) -> AbstractAsyncContextManager[None]:
        return asyncio.Semaphore(count)

    def is_current(self) -> bool:
        loop = asyncio.get_running_loop()
        current, self._loop = self._loop is loop, loop
        return current

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def connect(
        self, address: Address, tls: ssl.SSLContext | None, name: str, *, timeout_s: float
    ) -> AsyncConnection:
        host, port = address
        async with asyncio.timeout(timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                AsyncConnection, host, port, ssl=tls, server_hostname=None if tls is None else name
            )
        return connection


class AsyncConnection(asyncio.Protocol):
    """One keep-alive connection in an event loop."""

    def __init__(self) -> None:
        self.parser = ResponseParser()
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready = select.poll()
        self._error: HttpError | None = None
        self._busy = False
        self._what = END
        self._waiter: asyncio.Future[None] | None = None
        self._timeout_s = 0.0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._reading_paused = False
        self._writing_paused = False

    def is_open(self) -> bool:
        # The loop reports a closed connection when it next waits, which may be after the request is written.
        return self._error is None and not self._busy and not self._ready.poll(0)

    def is_lost(self) -> bool:
        return self._error is not None

    async def send(self, data: bytes, *, timeout_s: float) -> None:
        assert self._transport is not None
        if self._error is not None:
            return
        self._busy = True
        self._transport.write(data)
        if self._writing_paused:
            await self._wait(DATA, timeout_s)

    async def receive(self, what: int, *, timeout_s: float) -> None:
        parser = self.parser
        while not parser.has(what):
            if self._error is not None:
                raise self._error
            if self._reading_paused:
                self._reading_paused = False
                cast(asyncio.Transport, self._transport).resume_reading()
            await self._wait(what, timeout_s)
        if parser.complete:
            self._busy = False

    async def start_tls(self, context: ssl.SSLContext, name: str, *, timeout_s: float) -> None:
        assert self._transport is not None
        self._busy = False
        async with asyncio.timeout(timeout_s):
            transport = await self._loop.start_tls(self._transport, self, context, server_hostname=name)
        assert transport is not None
        self._transport = transport

    def close(self) -> None:
        self._fail(ConnectionLost("the connection was closed"))
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    async def _wait(self, what: int, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._waiter = self._loop.create_future()
        self._deadline = monotonic() + timeout_s
        if self._timer is None or self._deadline < self._timer_at:
            self._set_timer(timeout_s)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: HttpError) -> None:
        self._error = self._error or error
        self._wake()

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = monotonic() + delay_s
        self._timer = self._loop.call_later(delay_s, self._check_deadline)

    def _check_deadline(self) -> None:
        """Runs at most once per timeout, not once per request: setting and cancelling a timer costs 4 µs."""
        self._timer = None
        if self._waiter is None:
            return
        left = self._deadline - monotonic()
        if left > 0:
            self._set_timer(left)
        else:
            self._fail(TimedOut(f"no response within {self._timeout_s:g} s"))

    # Called by the event loop ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class
        self._ready.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if not self._busy or self.parser.complete:
            self._fail(ConnectionLost("the server sent data without a request"))
            self.close()
            return
        parser = self.parser
        try:
            parser.feed(data)
        except HttpError as error:
            self._fail(error)
            return
        if parser.has(self._what):
            self._wake()
        else:
            self._deadline = monotonic() + self._timeout_s
        if self._what != END and not parser.complete and len(parser.chunks) and not self._reading_paused:
            self._pause_if_full()

    def eof_received(self) -> None:
        self._finish()

    def connection_lost(self, reason: Exception | None) -> None:
        if reason is None:
            self._finish()
        else:
            self._fail(ConnectionLost(f"the connection broke: {reason}", responded=self.parser.received))
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake()

    def _finish(self) -> None:
        if self._busy and not self.parser.complete:
            try:
                self.parser.finish()
            except HttpError as error:
                self._fail(error)
                return
        self._wake()
        self._error = self._error or ConnectionLost("the server closed the connection", responded=self.parser.received)

    def _pause_if_full(self) -> None:
        if sum(map(len, self.parser.chunks)) > BUFFER_BYTES and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

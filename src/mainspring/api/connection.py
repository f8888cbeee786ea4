"""Client connections: what one may hold and send before a request on it is authenticated.

uvicorn bounds neither the head of a request nor the time it takes to arrive, and gives a connection that never sends
anything forever. Here each has a deadline or a limit, and clients that have not authenticated (strangers) can hold only
a part of the connections: a worker or user always finds a free one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mainspring.api.problem import SAFE_HEADERS, document
from mainspring.codec import encode
from mainspring.domain.address import Network, read_address, site_of

MAX_PIPELINED = 16
"""Requests of one connection that wait for the response to the one before them."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection, and of all connections of strangers."""

    head_bytes: int = 32_768
    headers: int = 100
    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 10.0  # between two requests of a stranger; others may wait as long as the server allows
    stalled_s: float = 60.0  # a client that does not read its response
    linger_s: float = 2.0
    linger_bytes: int = 262_144  # of a body that was refused, so that the client gets to read why
    strangers: int = 4_000
    strangers_per_address: int = 1_000
    trusted_proxies: tuple[Network, ...] = ()

    def for_files(self, files: int) -> ConnectionLimits:
        """Return these limits within a number of file descriptors: strangers get at most half of them."""
        return replace(
            self,
            strangers=max(1, min(self.strangers, files // 2)),
            strangers_per_address=max(1, min(self.strangers_per_address, files // 4)),
        )


@dataclass(slots=True)
class Strangers:
    """The connections that have not authenticated yet, oldest first, altogether and by address."""

    limits: ConnectionLimits
    everyone: dict[ClientConnection, None] = field(default_factory=dict)
    by_address: dict[str, dict[ClientConnection, None]] = field(default_factory=dict)

    def add(self, connection: ClientConnection) -> bool:
        """Add a connection; return whether there is room. The oldest idle one makes room for a new one."""
        address = connection.peer
        same = self.by_address.get(address, {}) if address else {}
        if len(same) >= self.limits.strangers_per_address and not _close_oldest_idle(same):
            return False
        if len(self.everyone) >= self.limits.strangers and not _close_oldest_idle(self.everyone):
            return False
        self.everyone[connection] = None
        if address:
            self.by_address.setdefault(address, {})[connection] = None
        return True

    def discard(self, connection: ClientConnection) -> None:
        self.everyone.pop(connection, None)
        if (same := self.by_address.get(connection.peer)) is not None:
            same.pop(connection, None)
            if not same:
                del self.by_address[connection.peer]

    def counted_address(self, host: str) -> str:
        """Return the address under which a peer is counted; empty for a trusted proxy, which speaks for many."""
        with contextlib.suppress(ValueError):
            address = read_address(host)
            if any(address in network for network in self.limits.trusted_proxies):
                return ""
        return site_of(host)


def _close_oldest_idle(connections: dict[ClientConnection, None]) -> bool:
    oldest = next((each for each in connections if each.is_idle), None)
    if oldest is not None:
        oldest.end()
    return oldest is not None


def _answer(status: int, phrase: str, code: str, detail: str, *headers: tuple[bytes, bytes]) -> bytes:
    body = encode(document(status, code, detail))
    lines = [
        b"HTTP/1.1 %d %s" % (status, phrase.encode()),
        b"content-type: application/problem+json",
        b"content-length: %d" % len(body),
        *(b"%s: %s" % header for header in (*SAFE_HEADERS, *headers)),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", body])


MALFORMED = _answer(400, "Bad Request", "malformed_request", "this is not a valid HTTP/1.1 request")
LATE = _answer(408, "Request Timeout", "request_timeout", "the request did not arrive in time; send it again at once")
CROWDED = _answer(
    503,
    "Service Unavailable",
    "too_many_connections",
    "too many connections that have not authenticated; try again later",
    (b"retry-after", b"1"),
)


def _head_too_large(limits: ConnectionLimits) -> bytes:
    return _answer(
        431,
        "Request Header Fields Too Large",
        "head_too_large",
        f"request line and headers have more than {limits.head_bytes:,} bytes or {limits.headers} headers;"
        " send fewer or shorter ones",
    )


class _Refused(Exception):
    """Ends the parsing of a request that is refused."""


class ClientConnection(HttpToolsProtocol):
    """One connection. Requests find it in their ASGI scope as `connection`."""

    def __init__(self, *args: Any, strangers: Strangers, **named: Any) -> None:
        super().__init__(*args, **named)
        self._strangers = strangers
        self._limits = strangers.limits
        self._idle_s = self.timeout_keep_alive
        self.timeout_keep_alive = self._limits.idle_s  # type: ignore[assignment]
        self.is_stranger = True
        self.peer = ""
        self.received_bytes = 0
        """Bytes of the request that is arriving; of its body only what was not announced as a long one."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection is lost, by a request that waits for something else meanwhile."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._has_request = False
        self._in_body = False
        self._is_admitted = False
        self._is_long = False
        self._refusal: bytes | None = None
        self._may_discard: int | None = None  # once the response is sent and the request is not read any more

    # What requests call ---------------------------------------------------------------------------------

    @property
    def has_client_certificate(self) -> bool:
        """Whether the client has shown a certificate; the handshake has checked it against the authority."""
        session = self.transport.get_extra_info("ssl_object")
        return session is not None and bool(session.getpeercert())

    def admit(self) -> None:
        """The request is authenticated: its body may be read, and the connection is no stranger's."""
        self._is_admitted = True
        if self.is_stranger:
            self.is_stranger = False
            self.timeout_keep_alive = self._idle_s
            self._strangers.discard(self)

    def allow_long_body(self) -> None:
        """The body of the request may take as long as it takes: a worker stream, or an upload."""
        self._is_long = True
        self._cancel_deadline()

    # What the event loop calls --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self._strangers.counted_address(self.client[0]) if self.client else ""
        if self._strangers.add(self):
            self._set_deadline(self._limits.head_s, self._on_late_head)
        else:
            self._refuse(CROWDED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._strangers.discard(self)
        self._cancel_deadline()
        self._cancel_stall()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._may_discard is not None:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        self.received_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal or MALFORMED)
            return
        except httptools.HttpParserUpgrade:
            pass  # served as a request without an upgrade
        if self._in_body:
            if self._deadline is None and not self._is_long:
                self._set_deadline(self._limits.body_s, self._on_late_body)
        elif self.received_bytes > self._limits.head_bytes:
            self._refuse(_head_too_large(self._limits))
        elif self._deadline is None and self.is_idle:
            self._set_deadline(self._limits.head_s, self._on_late_head)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stall()
        super().resume_writing()

    # What the parser calls ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_admitted = self._is_long = False
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        limits = self._limits
        if len(self.headers) > limits.headers or (
            # The bytes received include some of the body, so what the head has of them is counted only now.
            self.received_bytes > limits.head_bytes and self._head_bytes() > limits.head_bytes
        ):
            self._refusal = _head_too_large(limits)
            raise _Refused
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refused
        self._cancel_deadline()
        self._has_request = self._in_body = True
        self.received_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._cancel_deadline()
        self._in_body = False
        self.received_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The body that is arriving may be that of the next request, whose response is still to come.
        refused = self._in_body and self.cycle.response_complete and not self._is_admitted
        if refused and not self.transport.is_closing():
            self._linger()

    def _unsupported_upgrade_warning(self) -> None:
        """A stranger could fill the log with these."""

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # Ends -----------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served."""
        return not self._has_request or self.cycle.response_complete

    def end(self) -> None:
        """Close the connection without a response."""
        self._strangers.discard(self)
        self.transport.close()

    def _on_late_head(self) -> None:
        self._deadline = None
        if self.received_bytes:
            self._refuse(LATE)
        else:
            self.transport.close()

    def _on_late_body(self) -> None:
        self._deadline = None
        cycle = self.cycle
        if not self.is_idle:
            if not cycle.response_started:
                self.transport.write(LATE)
            cycle.disconnected = True  # the request gets a disconnect instead of the rest of its body
            cycle.message_event.set()
        self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        self._cancel_deadline()
        if not self.is_idle:  # a response is under way
            self.transport.abort()
            return
        self.transport.write(answer)
        self._linger()

    def _linger(self) -> None:
        """Close after a moment in which the client can read the response; what it still sends is discarded.

        A connection that is closed with unread data is reset, and the client loses the response with it.
        """
        self._unset_keepalive_if_required()
        self._cancel_deadline()
        self._may_discard = self._limits.linger_bytes
        self.transport.write_eof()
        self.flow.resume_reading()
        self._set_deadline(self._limits.linger_s, self.transport.abort)

    def _discard(self, size: int) -> None:
        assert self._may_discard is not None
        self._may_discard -= size
        if self._may_discard < 0:
            self.transport.abort()

    # Timers ---------------------------------------------------------------------------------------------

    def _set_deadline(self, seconds: float, then: Callable[[], None]) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, then)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

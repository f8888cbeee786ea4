"""Responses, and the parser that reads them from the bytes of a connection. The result is the same however the bytes
were split.
"""

from __future__ import annotations

import math

import httptools

from mainspring.http_client.errors import ConnectionLost, HttpError, InvalidResponse, ResponseTooLarge

MAX_HEAD_BYTES = 64 * 1024
"""Names and values of all headers of a response."""
MAX_BARREN_BYTES = 2 * MAX_HEAD_BYTES
"""Bytes in a row that carry no content: head, interim responses, chunk extensions, trailers."""

HEAD, DATA, END = range(3)
"""What a reader waits for: the head, more content, the end of the response."""

Header = tuple[bytes, bytes]


class Head:
    """Status and headers of a response."""

    __slots__ = ("headers", "reason", "status")

    def __init__(self, status: int, reason: bytes, headers: list[Header]) -> None:
        self.status = status
        self.reason = reason.decode("latin-1")
        self.headers = headers

    def header(self, name: str, default: str = "") -> str:
        """Return the first value of a header; `name` is in lower case."""
        wanted = name.encode("ascii")
        for key, value in self.headers:
            if len(key) == len(wanted) and key.lower() == wanted:
                return value.decode("latin-1")
        return default


class Response(Head):
    """A complete response."""

    __slots__ = ("body",)

    def __init__(self, status: int, reason: bytes, headers: list[Header], body: bytes) -> None:
        super().__init__(status, reason, headers)
        self.body = body


class ResponseParser:
    """Parses the responses of one connection, one at a time. `begin` comes before each request."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._active = False
        self.begin()

    def begin(self, *, max_bytes: float = math.inf, bodiless: bool = False) -> None:
        """Expect a response; `bodiless`: it ends with its head, as responses to HEAD and CONNECT do."""
        self.status = 0
        self.reason = b""
        self.headers: list[Header] = []
        self.chunks: list[bytes] = []
        self.has_head = False
        self.complete = False
        self.keep_alive = False
        self.received = False
        self._max_bytes = max_bytes
        self._bodiless = bodiless
        self._size = 0
        self._head_bytes = 0
        self._barren_bytes = 0
        self._error: HttpError | None = None
        self._active = True

    def has(self, what: int) -> bool:
        if what == END:
            return self.complete
        if what == HEAD:
            return self.has_head
        return bool(self.chunks) or self.complete

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises `InvalidResponse` if they are not part of an acceptable response."""
        self.received = True
        before = self._size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.complete:  # more than one response: what follows belongs to no request
                self.keep_alive = False
                return
            raise self._error or InvalidResponse(f"not an HTTP response: {error}") from None
        self._barren_bytes = self._barren_bytes + len(data) if self._size == before else 0
        if self._barren_bytes > MAX_BARREN_BYTES and not self.complete:
            raise ResponseTooLarge(f"the response has more than {MAX_BARREN_BYTES:,} bytes in a row without content")

    def finish(self) -> None:
        """The connection was closed. This ends a response without a length; any other one is incomplete."""
        if self.complete:
            return
        if not self.has_head or self._has_length():
            raise ConnectionLost("the server closed the connection", responded=self.received)
        self._end()

    def take(self) -> bytes:
        """Return the content that has arrived since the last call."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        return data

    def head(self) -> Head:
        return Head(self.status, self.reason, self.headers)

    def response(self) -> Response:
        return Response(self.status, self.reason, self.headers, self.take())

    def _has_length(self) -> bool:
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    def _end(self) -> None:
        self.complete = True
        self._active = False

    def _fail(self, error: HttpError) -> None:
        self._error = self._error or error

    # Called by the parser ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._active:
            raise ValueError("more than one response to a request")

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:  # a trailer
            return
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(ResponseTooLarge(f"the headers of the response have more than {MAX_HEAD_BYTES:,} bytes"))
            raise ValueError
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.status = status
        self.has_head = True
        if self._bodiless:
            self._end()

    def on_body(self, data: bytes) -> None:
        if not self._active:
            return
        self._size += len(data)
        if self._size > self._max_bytes:
            self._fail(ResponseTooLarge(f"the response has more than {self._max_bytes:,} bytes"))
            raise ValueError
        self.chunks.append(data)

    def on_message_complete(self) -> None:
        if not self.has_head:  # an interim response such as 100 Continue
            self.headers, self.reason = [], b""
        elif self._active:
            self.keep_alive = self._parser.should_keep_alive()
            self._end()

"""Server-sent events. The result is the same however the bytes were split."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from mainspring.http_client.errors import InvalidResponse, ResponseTooLarge

MAX_EVENT_BYTES = 16 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    event: str
    data: str
    id: str


class EventParser:
    """Parses an event stream."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the beginning of a line
        self._after_cr = False
        self._size = 0
        self._event = ""
        self._data: list[str] = []
        self._id = ""
        self._pending = False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        *lines, rest = _LINE_END.split(chunk)
        self._size += len(chunk)
        if lines:
            self._after_cr = not rest and chunk.endswith(b"\r")
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        if rest:
            self._rest.append(rest)
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._end()) is not None:
                yield event
        if self._size > MAX_EVENT_BYTES:
            raise ResponseTooLarge(f"an event has more than {MAX_EVENT_BYTES:,} bytes")

    def _field(self, line: bytes) -> None:
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise InvalidResponse(f"the event stream is not UTF-8: {error}") from None
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        else:  # a comment, or a field that is not supported
            return
        self._pending = True

    def _end(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._event or "message", "\n".join(self._data), self._id) if self._pending else None
        self._event, self._data, self._size, self._pending = "", [], 0, False
        return event


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream as they arrive."""
    parser = EventParser()
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event

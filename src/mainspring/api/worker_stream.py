"""The worker stream: work is sent to the worker, and its results and heartbeats arrive, over one open request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, cast

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mainspring import wire
from mainspring.api.errors import public_error
from mainspring.api.problem import SAFE_HEADERS, status_of
from mainspring.api.route import Call, Table
from mainspring.api.worker_identity import proof_of
from mainspring.api.workers import WORKER, check_protocol, renew_lease, settle_results
from mainspring.codec import decode, encode
from mainspring.dispatch.streams import WorkerStream
from mainspring.domain.errors import Invalid, MainspringError, TooLarge

log = structlog.get_logger()

table = Table()
OPEN_S = 10.0
MAX_UNANSWERED = 8
"""Messages of one worker that are worked on at the same time; the next one is read when one of them is answered."""
MAX_OUTGOING_BYTES = 1_000_000
"""What may wait to be sent before nothing more is read: a worker that sends and never reads costs no more memory."""
CLOSE_S = 10.0
"""How long the last messages may take to be sent, before the connection is given up."""
HEADERS = [
    (b"content-type", b"application/x-ndjson"),
    *SAFE_HEADERS,
    (b"x-accel-buffering", b"no"),
]


@table.route("POST", WORKER + "/stream", scope="worker")
async def stream(call: Call) -> Response:
    """Open a worker stream: work is sent as it becomes ready, while the request body carries results and heartbeats."""
    check_protocol(call)
    call.allow_long_body()
    lines = LineReader(call.request.receive)
    try:
        async with asyncio.timeout(OPEN_S):
            opening = await lines.next()
    except TimeoutError:
        raise Invalid(f"no message arrived within {OPEN_S:g} s; send `open` first", code="protocol") from None
    request = None if opening is None else decode_message(opening)
    if not isinstance(request, wire.OpenStream):
        raise Invalid("the first message must be `open`", code="protocol")
    return await StreamResponse.open(call, request, lines)


class Numbered(msgspec.Struct):
    """Any message that wants an answer."""

    number: int


def decode_message(line: bytes) -> wire.WorkerMessage:
    message: wire.WorkerMessage = decode(
        line, cast(Any, wire.WorkerMessage), limit=wire.MAX_LINE_BYTES, large_integers=True
    )
    return message


class LineReader:
    """Splits a request body into lines as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of a line whose end has not arrived
        self._size = 0

    async def next(self) -> bytes | None:
        """Return the next line; None when the body or the connection has ended."""
        while not self._lines:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            self._split(message.get("body", b""))
            if not message.get("more_body", False) and not self._lines:
                return None
        return self._lines.popleft()

    def _split(self, chunk: bytes) -> None:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._lines.append(b"".join([*self._parts, line]) if self._parts else line)
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > wire.MAX_LINE_BYTES:
            raise TooLarge(f"a message has more than {wire.MAX_LINE_BYTES:,} bytes")


class StreamResponse(Response):
    """The response of one stream: a reader that handles what arrives, and a writer for everything that is sent."""

    def __init__(self, call: Call, lines: LineReader) -> None:
        super().__init__()
        self._call = call
        self._context = call.context
        self._lines = lines
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._closing = False
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: asyncio.Task[None] | None = None
        self._stream: WorkerStream

    @classmethod
    async def open(cls, call: Call, request: wire.OpenStream, lines: LineReader) -> StreamResponse:
        opened = cls(call, lines)
        opened._stream = await call.context.dispatcher.open_stream(
            request, opened._send, tenant=call.tenant, proof=proof_of(call)
        )
        return opened

    def _send(self, message: wire.ApiMessage) -> None:
        line = encode(message)
        self._outgoing.append(line)
        self._outgoing_bytes += len(line)
        if isinstance(message, wire.Closing):
            self._closing = True
            asyncio.get_running_loop().call_later(CLOSE_S, self._give_up)
        self._wake.set()

    def _give_up(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = asyncio.create_task(self._read(), name="worker stream")
        self._writing = asyncio.current_task()
        with self._context.streams.opened("worker", self._call.caller, reading.cancel):
            await self._serve(send, reading)

    async def _serve(self, send: Send, reading: asyncio.Task[None]) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            # The worker waits for a first line: it shows that no proxy holds the stream back.
            self._outgoing.insert(0, b"{}")
            self._wake.set()
            reading.add_done_callback(lambda _: self._wake.set())
            await self._write(send, reading)
        except asyncio.CancelledError:
            log.warning("stream.given_up", session=str(self._stream.session.session_id), reason="it is not read")
            raise
        finally:
            self._writing = None
            reading.cancel()
            self._context.dispatcher.close_stream(self._stream)

    async def _write(self, send: Send, reading: asyncio.Task[None]) -> None:
        while not reading.done():
            await self._wake.wait()
            self._wake.clear()
            if self._outgoing:
                lines, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
                body = b"\n".join([*lines, b""])
                await send({"type": "http.response.body", "body": body, "more_body": not self._closing})
                self._written.set()
            if self._closing:
                return
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.warning("stream.ended", session=str(self._stream.session.session_id), error=str(error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    # What the worker sends ---------------------------------------------------------------------------

    async def _read(self) -> None:
        while (line := await self._lines.next()) is not None:
            self._stream.heard_at = monotonic()
            while self._outgoing_bytes > MAX_OUTGOING_BYTES:
                self._written.clear()
                await self._written.wait()
            try:
                message = decode_message(line)
            except Invalid as error:
                self._reject(self._number_of(line, error), error)
                continue
            match message:
                case wire.Capacity():
                    self._context.dispatcher.state_capacity(self._stream, message)
                case wire.ReportResults():
                    if message.capacity is not None:
                        self._context.dispatcher.state_capacity(self._stream, message.capacity)
                    await self._begin(message.number, partial(self._settle, message))
                case wire.RenewLease():
                    await self._begin(message.number, partial(self._renew, message))
                case wire.Recall():
                    await self._begin(message.number, self._recall)
                case wire.Ping():
                    self._send(wire.Answer(number=message.number))
                case wire.OpenStream():
                    raise Invalid("the stream is already open")

    async def _begin(self, number: int, work: Callable[[], Awaitable[object]]) -> None:
        """Answer a message when its work is done, without keeping later messages waiting."""
        if len(self._tasks) >= MAX_UNANSWERED:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._answer(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, work: Callable[[], Awaitable[object]]) -> None:
        try:
            self._send(wire.Answer(number=number, body=await work()))
        except Exception as error:
            self._reject(number, public_error(error))

    def _reject(self, number: int, error: MainspringError) -> None:
        self._send(wire.Rejected(number=number, status=status_of(error), code=error.code, detail=error.message))

    @staticmethod
    def _number_of(line: bytes, error: Invalid) -> int:
        """Return the number of a message that can't be read otherwise, so that its sender learns why."""
        try:
            return msgspec.json.decode(line, type=Numbered).number
        except msgspec.DecodeError:
            raise error from None

    async def _settle(self, message: wire.ReportResults) -> wire.Settled:
        session = self._stream.session
        return await settle_results(self._context, message, session_id=session.session_id, proof=session.proof)

    async def _renew(self, message: wire.RenewLease) -> wire.Beat:
        await self._context.auth.caller(self._call.request)  # a revoked token ends the stream's lease
        session = self._stream.session
        return await renew_lease(
            self._context, message, session_id=session.session_id, tenant=session.tenant, proof=session.proof
        )

    async def _recall(self) -> None:
        await self._context.dispatcher.recall(self._stream)

"""The stream of a session: attempts arrive when they are assigned; results and heartbeats leave on the same
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.job import Definition
from mainspring.worker.attempt import Attempts
from mainspring.worker.slots import Slots
from mainspring.worker.transport.api_client import (
    ApiAddress,
    ApiUnavailable,
    PollAnswer,
    SessionEnded,
    error_of,
    read_answer,
)
from mainspring.worker.transport.stream_connection import StreamConnection, connect

log = structlog.get_logger()

T = TypeVar("T")

OPEN_S = 5.0
"""How long the api may take to send the first line. A proxy that gathers whole requests or responses never sends it."""
PING_S = 15.0
"""After this long without a line, the worker asks for one; without an answer, the connection counts as broken."""
ANSWER_S = 75.0
EARLY_SHARE = 4
"""Free slots are stated with the next results. If those wait for earlier ones, slots are stated on their own as soon as
this fraction of them has become free."""


class StreamUnsupported(Exception):
    """Something between worker and api does not pass streams on."""


class StreamBroken(Exception):
    """The connection ended before the first line. If that happens every time, streams are not passed on."""


class _Work(msgspec.Struct, tag_field="type", tag="work"):
    """As `wire.Work`; a definition that this worker can't decode must not keep it from the others."""

    executions: list[wire.Assignment] = []
    definitions: dict[str, msgspec.Raw] = {}
    cancels: list[UUID] = []
    preempts: list[wire.Preempt] = []
    forget: bool = False


class _Answer(msgspec.Struct, tag_field="type", tag="answer"):
    number: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Other(msgspec.Struct):
    type: str = ""


_KNOWN = frozenset(("work", "answer", "rejected", "state_capacity", "closing"))
_decode = msgspec.json.Decoder(_Work | _Answer | wire.Rejected | wire.StateCapacity | wire.Closing).decode


class WorkStream:
    """One stream at a time. `open` may be called again when it has ended."""

    def __init__(
        self,
        address: ApiAddress,
        session_id: UUID,
        slots: Slots,
        attempts: Attempts,
        *,
        results_wait: Callable[[], bool],
        is_draining: Callable[[], bool],
    ) -> None:
        self._address = address
        self._session_id = session_id
        self._slots = slots
        self._attempts = attempts
        self._results_wait = results_wait
        self._is_draining = is_draining
        self._loop = asyncio.get_running_loop()
        self._connection: StreamConnection | None = None
        self._opened_before = False
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._first_line: asyncio.Future[None] = self._loop.create_future()
        self._session_ended = False
        self._heard_at = 0.0
        self._number = 0
        self._unanswered: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._received = 0
        self._stated = 0  # received executions and free slots together, when last stated
        self._definitions: dict[str, Definition] = {}
        self._unreadable: dict[str, str] = {}

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._first_line.done()

    async def open(self) -> None:
        """Open the stream. Raises ApiUnavailable, SessionEnded, Refused, StreamBroken or StreamUnsupported."""
        self._ended, self._first_line = self._loop.create_future(), self._loop.create_future()
        self._received = 0
        self._definitions, self._unreadable = {}, {}
        connection = await connect(self._address, "/api/v1/worker/stream", self._on_line, self._on_end)
        held = self._slots.held() if self._opened_before else None
        # No capacity until the first line has arrived: work sent into a stream that something holds back would be lost.
        nothing = wire.Capacity(received=0, free=0)
        connection.write(encode(wire.OpenStream(session_id=self._session_id, capacity=nothing, held=held)))
        self._connection = connection
        waits: set[asyncio.Future[Any]] = {self._first_line, self._ended}
        await asyncio.wait(waits, timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        if self._first_line.done():
            self._opened_before = True
            return
        reason = self._ended.result() if self._ended.done() else ""
        connection.close()
        if connection.status not in (0, 200):
            if connection.status in (404, 405, 411, 501):
                raise StreamUnsupported(f"the answer to a stream was {connection.status}")
            if not _is_problem(connection.problem):
                raise StreamBroken(f"the answer to a stream was {connection.status}, and not from the api")
            read_answer(connection.status, connection.problem, dict)
        if reason:
            raise StreamBroken(reason)
        raise StreamUnsupported(f"no line of the response arrived within {OPEN_S:g} s")

    async def until_ended(self) -> str:
        """Return why the stream ended. Raises SessionEnded if the session has."""
        while not self._ended.done():
            await asyncio.wait({self._ended}, timeout=PING_S)
            silent_s = self._loop.time() - self._heard_at
            if self._ended.done() or silent_s < PING_S:
                continue
            if silent_s > 3 * PING_S:
                self.close()
            else:
                self._write(wire.Ping(number=self._next_number()))
        if self._session_ended:
            raise SessionEnded("the session has ended")
        return self._ended.result()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # Messages to the api -----------------------------------------------------------------------------

    async def results(self, body: wire.Results) -> wire.Settled:
        number = self._next_number()
        message = wire.ReportResults(
            number=number, results=body.results, output=body.output, no_retry=body.no_retry, capacity=self._capacity()
        )
        return await self._call(number, message, wire.Settled)

    async def heartbeat(self, body: wire.Heartbeat) -> wire.Beat:
        number = self._next_number()
        message = wire.RenewLease(
            number=number, running=body.running, draining=body.draining, progress=body.progress, usage=body.usage
        )
        return await self._call(number, message, wire.Beat)

    async def recall(self) -> None:
        """Return when the api sends no more work; what it sent before has arrived."""
        number = self._next_number()
        await self._call(number, wire.Recall(number=number), Any)

    def state_capacity(self) -> None:
        if self.is_open:
            self._write(self._capacity())

    def slot_freed(self) -> None:
        """State free slots now if the next results can't do it soon."""
        if not self.is_open or not self._results_wait():
            return
        if self._received + self._slots.free - self._stated >= max(1, self._slots.count // EARLY_SHARE):
            self._write(self._capacity())

    def _capacity(self) -> wire.Capacity:
        free = 0 if self._is_draining() else self._slots.free
        self._stated = self._received + free
        return wire.Capacity(received=self._received, free=free, resources=self._slots.remaining_resources())

    async def _call(self, number: int, message: wire.WorkerMessage, answer: type[T] | Any) -> T:
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._unanswered[number] = future
        try:
            self._write(message)
            async with asyncio.timeout(ANSWER_S):
                body = await future
        except TimeoutError:
            raise ApiUnavailable(f"no answer within {ANSWER_S:g} s") from None
        finally:
            self._unanswered.pop(number, None)
        try:
            found: T = msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise ApiUnavailable(f"cannot decode the api's answer: {error}") from error
        return found

    def _write(self, message: wire.WorkerMessage) -> None:
        if self._connection is None:
            raise ApiUnavailable("the stream has ended")
        self._connection.write(encode(message))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # Messages from the api ---------------------------------------------------------------------------

    def _on_line(self, line: bytes) -> None:
        self._heard_at = self._loop.time()
        if not self._first_line.done():
            self._first_line.set_result(None)
            self.state_capacity()
        try:
            self._handle(_decode(line))
        except msgspec.DecodeError as error:
            if not _is_unknown(line):
                self._on_end(f"cannot decode a message: {error}")
        except Exception as error:
            # A bug in this worker. In the next stream the api sends again what it lost.
            log.exception("stream.failed")
            self._on_end(f"an error of this worker: {error!r}")

    def _handle(self, message: _Work | _Answer | wire.Rejected | wire.StateCapacity | wire.Closing) -> None:
        match message:
            case _Work():
                self._take(message)
            case _Answer():
                if (future := self._unanswered.get(message.number)) is not None and not future.done():
                    future.set_result(message.body)
            case wire.Rejected():
                if (future := self._unanswered.get(message.number)) is not None and not future.done():
                    future.set_exception(error_of(message.status, message.code, message.detail))
            case wire.StateCapacity():
                self.state_capacity()
            case wire.Closing():
                self._session_ended = message.session_ended
                self._on_end("the api closed it")

    def _take(self, message: _Work) -> None:
        self._slots.cancel(message.cancels)
        self._slots.preempt(message.preempts)
        if not message.executions:
            return
        if message.forget:
            self._definitions, self._unreadable = {}, {}
        for name, text in message.definitions.items():
            try:
                self._definitions[name] = msgspec.json.decode(text, type=Definition)
            except msgspec.DecodeError as error:
                self._unreadable[name] = str(error)
        self._received += len(message.executions)
        new = [each for each in message.executions if not self._slots.holds(each)]
        answer = PollAnswer(
            executions=new, definitions=self._definitions, cancels=[], preempts=[], unreadable=self._unreadable
        )
        taken = self._attempts.take(answer)
        if self._slots.is_demanding(taken) or len(taken) < len(message.executions):
            self.state_capacity()  # the api sends nothing more until it knows what they leave, or counts one twice
        self._attempts.begin_now(taken)

    def _on_end(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        if not self._ended.done():
            self._ended.set_result(reason)
        for future in self._unanswered.values():
            if not future.done():
                future.set_exception(ApiUnavailable(f"the stream ended: {reason}"))
        if connection is not None:
            connection.close()


def _is_problem(content: bytes) -> bool:
    """Whether the api itself answered, not something on the way to it."""
    try:
        return "code" in msgspec.json.decode(content, type=dict)
    except msgspec.DecodeError:
        return False


def _is_unknown(line: bytes) -> bool:
    """Whether this is a message that only newer workers know, or the empty one that shows that the stream is open."""
    try:
        return msgspec.json.decode(line, type=_Other).type not in _KNOWN
    except msgspec.DecodeError:
        return False

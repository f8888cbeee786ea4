"""The worker's end of a stream, driven by the test message by message over a plain socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.domain.execution import Outcome
from tests.conftest import Cluster
from tests.support.remote_worker import Remote, remote

WAIT_S = 20.0
T = TypeVar("T")
_decode = msgspec.json.Decoder(wire.Work | wire.Answer | wire.Rejected | wire.StateCapacity | wire.Closing).decode


@dataclass
class RemoteStream:
    """`work`, `rejected` and so on list what has arrived; `status` and `problem` are of an unsuccessful response."""

    session_id: UUID
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    problem: dict[str, Any] = field(default_factory=dict)
    is_open: bool = False
    ended: bool = False
    work: list[wire.Work] = field(default_factory=list)
    answers: dict[int, Any] = field(default_factory=dict)
    rejected: dict[int, wire.Rejected] = field(default_factory=dict)
    order: list[wire.ApiMessage] = field(default_factory=list)
    number: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # What has arrived --------------------------------------------------------------------------------

    @property
    def executions(self) -> list[wire.Assignment]:
        return [given for work in self.work for given in work.executions]

    @property
    def ids(self) -> list[UUID]:
        return [given.execution_id for given in self.executions]

    @property
    def cancels(self) -> list[UUID]:
        return [execution for work in self.work for execution in work.cancels]

    @property
    def preempts(self) -> list[wire.Preempt]:
        return [preempt for work in self.work for preempt in work.preempts]

    async def until(self, holds: Callable[[], T]) -> T:
        """Return what `holds` returns as soon as that is true."""
        async with asyncio.timeout(WAIT_S):
            while not (found := holds()):
                self._changed.clear()
                await self._changed.wait()
        return found

    async def received(self, count: int) -> list[wire.Assignment]:
        """Wait for so many executions, of all that the stream has brought."""
        await self.until(lambda: len(self.executions) >= count)
        return self.executions

    async def end(self) -> None:
        await self.until(lambda: self.ended)

    # Messages ----------------------------------------------------------------------------------------

    async def write(self, line: bytes) -> None:
        """Send a line as one chunk of the request body."""
        self.writer.write(b"%x\r\n%b\n\r\n" % (len(line) + 1, line))
        await self.writer.drain()

    async def state(self, free: int, *, received: int | None = None, resources: dict[str, int] | None = None) -> None:
        received = len(self.executions) if received is None else received
        await self.write(encode(wire.Capacity(received=received, free=free, resources=resources)))

    async def call(self, message: Any, **fields: Any) -> Any:
        """Send a numbered message; return the body of its answer, or the rejection."""
        self.number += 1
        number = self.number
        await self.write(encode(message(number=number, **fields)))
        return await self.answer(number)

    async def answer(self, number: int) -> Any:
        await self.until(lambda: number in self.answers or number in self.rejected)
        return self.rejected[number] if number in self.rejected else self.answers[number]

    async def settle(
        self, *given: wire.Assignment, outcome: Outcome = "succeeded", free: int | None = None, output: bytes = b""
    ) -> Any:
        """Report the end of attempts; return the stale ones, or the rejection."""
        results = [wire.Result(g.execution_id, g.attempt, outcome, 1, 0) for g in given]
        chunks = [wire.Output(g.execution_id, g.attempt, 0, "stdout", output) for g in given if output]
        capacity = None if free is None else wire.Capacity(received=len(self.executions), free=free)
        found = await self.call(wire.ReportResults, results=results, output=chunks, capacity=capacity)
        return found if isinstance(found, wire.Rejected) else found["stale"]

    async def beat(self, *running: UUID, draining: bool = False) -> Any:
        return await self.call(wire.RenewLease, running=list(running), draining=draining)

    async def synced(self) -> None:
        """Return when the api has read everything sent so far, and what it sent before has arrived."""
        await self.call(wire.Ping)

    def close(self) -> None:
        self.writer.transport.abort()

    # Reading -----------------------------------------------------------------------------------------

    async def read(self) -> None:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            self.status = int(head[9:12])
            if self.status != 200:
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                self.problem = msgspec.json.decode(await self.reader.readexactly(length))
                return
            rest = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                *lines, rest = (rest + (await self.reader.readexactly(size + 2))[:-2]).split(b"\n")
                for line in lines:
                    self._take(line)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended = True
            self._changed.set()

    def _take(self, line: bytes) -> None:
        if line == b"{}":
            self.is_open = True
        else:
            message = _decode(line)
            self.order.append(message)
            match message:
                case wire.Work():
                    self.work.append(message)
                case wire.Answer():
                    self.answers[message.number] = message.body
                case wire.Rejected():
                    self.rejected[message.number] = message
        self._changed.set()


def request_head(url: str, token: str, *, protocol: str = wire.PROTOCOL, key: str = "") -> bytes:
    return (
        f"POST /api/v1/worker/stream HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Mainspring-Protocol: {protocol}\r\nTransfer-Encoding: chunked\r\n"
        + (f"{wire.SESSION_KEY}: {key}\r\n\r\n" if key else "\r\n")
    ).encode()


@asynccontextmanager
async def request(url: str, token: str, session_id: UUID, **head: str) -> AsyncIterator[RemoteStream]:
    """A request for a stream, of which only the headers have been sent."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=2**26)
    writer.write(request_head(url, token, **head))
    stream = RemoteStream(session_id, reader, writer)
    reading = asyncio.create_task(stream.read())
    try:
        yield stream
    finally:
        stream.close()
        reading.cancel()


@asynccontextmanager
async def stream_of(
    cluster: Cluster,
    session_id: UUID,
    *,
    free: int = 0,
    resources: dict[str, int] | None = None,
    held: list[UUID] | None = None,
    token: str | None = None,
    key: str = "",
) -> AsyncIterator[RemoteStream]:
    """An open stream, or one that was refused."""
    async with request(cluster.url, token or cluster.worker_token, session_id, key=key) as stream:
        capacity = wire.Capacity(received=0, free=free, resources=resources)
        await stream.write(encode(wire.OpenStream(session_id=session_id, capacity=capacity, held=held)))
        await stream.until(lambda: stream.is_open or stream.ended)
        yield stream


@asynccontextmanager
async def streaming(
    cluster: Cluster, queue: str, *, slots: int = 4, free: int = 0, **has: Any
) -> AsyncIterator[tuple[AsyncClient, Remote, RemoteStream]]:
    """A client, a worker of this queue, and its open stream."""
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue, slots=slots, **has) as worker,
        stream_of(cluster, worker.session_id, free=free, key=worker.key) as stream,
    ):
        yield client, worker, stream

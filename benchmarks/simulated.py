"""Simulated workers, thousands in a process: they receive work, send heartbeats and report results over real HTTP.

With streams, each has one connection for everything. With polls, each has two: one polls and reports results, one sends
heartbeats. Both are like a real worker. There are no coroutines and no HTTP client, to keep the simulation cheap; its
CPU time is reported at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import uvloop
from harness import quantile

from mainspring import wire
from mainspring.codec import encode
from mainspring.worker.stream import PING_S
from mainspring.worker.transport.stream_connection import StreamConnection

SLOTS = 4
WAIT_S = 30.0
RETRY_S = 1.0
"""After a request that was refused or cut off, as a real worker waits."""

Then = Callable[[Any], None]
P = TypeVar("P", bound=asyncio.Protocol)


class Connection(asyncio.Protocol):
    """One connection of a requester. Data that arrives after it was replaced is ignored."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._answer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, reason: Exception | None) -> None:
        self._line.lost(self)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._answer = b""
        self._line.answered(self, int(head[9:12]), body, last=b"connection: close" in head)


class Line:
    """Sends one request at a time over a keep-alive connection; failed requests are retried."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._connection: Connection | None = None
        self._asked: tuple[str, bytes, Then] | None = None
        self._sent = False
        """Whether the request is in flight, not waiting for a retry."""

    def ask(self, path: str, body: wire.Request, then: Then) -> None:
        data = encode(body)
        self._asked = (path, f"POST /api/v1/worker/{path} {self._fleet.head}{len(data)}\r\n\r\n".encode() + data, then)
        self._send()

    def _send(self) -> None:
        self._sent = True
        if self._connection is None:
            self._fleet.connect(lambda: Connection(self), self._connected, self._not_connected)
        else:
            self._write()

    def _write(self) -> None:
        assert self._asked is not None and self._connection is not None and self._connection.transport is not None
        self._connection.transport.write(self._asked[1])

    def _connected(self, connection: Connection) -> None:
        self._connection = connection
        self._write()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    def _again(self) -> None:
        self._sent = False
        self._fleet.loop.call_later(RETRY_S, self._send)

    def _not_connected(self) -> None:
        self._fleet.broken += 1
        self._again()

    def lost(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._sent and not self._fleet.ending:
            self._fleet.broken += 1
            self._again()

    def answered(self, connection: Connection, status: int, body: bytes, *, last: bool) -> None:
        assert connection is self._connection and self._asked is not None and self._sent, "an answer nobody asked for"
        path, _, then = self._asked
        if last:
            self.close()
        if status == 503:
            self._fleet.refused += 1
            self._again()
            return
        self._asked, self._sent = None, False
        if status < 300:
            then(json.loads(body))
        else:
            self._fleet.failed.append(f"{path}: {status} {body[:200].decode()}")


class Simulated:
    """One worker, from its registration on."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._work, self._heart = Line(fleet), Line(fleet)
        self._number = number
        self._running: list[Any] = []
        self._session: Any = None
        self._every_s = 5.0
        self._rested = False
        self._begun = 0.0

    def begin(self) -> None:
        register = wire.Register(
            name=f"sim-{self._number}", host="sim", version="0", slots=SLOTS, queues=["short"], kinds=["noop"]
        )
        self._work.ask("sessions", register, self._registered)

    def _registered(self, answer: dict[str, Any]) -> None:
        self._session, self._every_s = answer["session_id"], answer["heartbeat_s"]
        self._fleet.registered += 1
        self._fleet.loop.call_later(random.uniform(0, self._every_s), self._beat)
        self._receive()

    def _receive(self) -> None:
        """Begin to receive executions."""
        raise NotImplementedError

    def _results(self, executions: list[Any]) -> list[wire.Result]:
        hold_ms = int(self._fleet.hold_s * 1000)
        return [
            wire.Result(execution_id=e[0], attempt=e[1], outcome="succeeded", duration_ms=hold_ms) for e in executions
        ]

    def _beat(self) -> None:
        self._rested = not self._running and not self._rested
        if self._rested:  # as a real worker without executions
            self._fleet.loop.call_later(self._every_s, self._beat)
            return
        self._begun = time.perf_counter()
        self._renew()

    def _renew(self) -> None:
        self._heart.ask("heartbeat", wire.Heartbeat(session_id=self._session, running=self._running), self._renewed)

    def _renewed(self, _: dict[str, Any]) -> None:
        self._fleet.beats.append(time.perf_counter() - self._begun)
        self._fleet.loop.call_later(self._every_s, self._beat)


class Polling(Simulated):
    """A worker that polls."""

    def _receive(self) -> None:
        self._work.ask("poll", wire.Poll(session_id=self._session, free=SLOTS, wait_s=WAIT_S), self._polled)

    def _polled(self, answer: dict[str, Any]) -> None:
        executions = answer["executions"]
        if not executions:
            self._receive()
            return
        self._running = [e[0] for e in executions]
        body = wire.Results(session_id=self._session, results=self._results(executions))
        self._fleet.loop.call_later(self._fleet.hold_s, self._work.ask, "results", body, self._settled)

    def _settled(self, answer: dict[str, Any]) -> None:
        self._fleet.done += len(self._running) - len(answer["stale"])
        self._running = []
        self._receive()


class Streaming(Simulated):
    """A worker with a stream. While it has none, it sends heartbeats as requests, and results wait for the next one."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        super().__init__(fleet, number)
        self._connection: StreamConnection | None = None
        self._is_open = self._opened_before = False
        self._last = self._beat_number = 0
        self._received = self._held = 0
        self._unanswered: dict[int, list[wire.Result]] = {}
        self._heard_at = 0.0

    def _receive(self) -> None:
        self._work.close()  # it was only for the registration
        self._open()
        self._fleet.loop.call_later(PING_S, self._watch)

    def _open(self) -> None:
        self._fleet.connect(lambda: StreamConnection(self._on_line, self._on_end), self._connected, self._not_connected)

    def _connected(self, connection: StreamConnection) -> None:
        self._connection, self._received = connection, 0
        connection.write_head(self._fleet.stream_head)
        held = self._running if self._opened_before else None
        nothing = wire.Capacity(received=0, free=0)
        self._write(wire.OpenStream(session_id=self._session, capacity=nothing, held=held))

    def _not_connected(self) -> None:
        self._fleet.broken += 1
        self._fleet.loop.call_later(RETRY_S, self._open)

    def _on_end(self, reason: str) -> None:
        connection, self._connection, self._is_open = self._connection, None, False
        if connection is None or self._fleet.ending:
            return
        if connection.status in (0, 200):
            self._fleet.broken += 1
        elif connection.status == 503:
            self._fleet.refused += 1
        else:
            self._fleet.failed.append(f"stream: {connection.status} {connection.problem[:200].decode()}")
            return
        if self._beat_number:
            self._beat_number = 0
            self._renew()
        self._fleet.loop.call_later(RETRY_S, self._open)

    def _watch(self) -> None:
        self._fleet.loop.call_later(PING_S, self._watch)
        if not self._is_open or self._connection is None:
            return
        silent_s = time.perf_counter() - self._heard_at
        if silent_s > 3 * PING_S:
            self._connection.close()
        elif silent_s >= PING_S:
            self._write(wire.Ping(number=self._next()))

    # Messages to the api -----------------------------------------------------------------------------

    def _write(self, message: wire.WorkerMessage) -> None:
        if self._connection is not None:
            self._connection.write(encode(message))

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _capacity(self) -> wire.Capacity:
        return wire.Capacity(received=self._received, free=SLOTS - self._held)

    def _renew(self) -> None:
        if not self._is_open:
            super()._renew()
            return
        self._beat_number = self._next()
        self._write(wire.RenewLease(number=self._beat_number, running=self._running))

    def _ended(self, executions: list[Any]) -> None:
        self._held -= len(executions)
        self._report(self._results(executions))

    def _report(self, results: list[wire.Result]) -> None:
        number = self._next()
        self._unanswered[number] = results
        if self._is_open:
            self._write(wire.ReportResults(number=number, results=results, capacity=self._capacity()))

    # Messages from the api ---------------------------------------------------------------------------

    def _on_line(self, line: bytes) -> None:
        self._heard_at = time.perf_counter()
        message = msgspec.json.decode(line)
        match message.get("type"):
            case None:
                self._opened()
            case "work":
                self._take(message.get("executions", []))
            case "answer":
                self._answered(message["number"], message.get("body"))
            case "rejected":
                self._rejected(message)
            case "state_capacity":
                self._write(self._capacity())
            case "closing" if message["session_ended"]:
                self._connection = None
                self._fleet.failed.append("stream: the session has ended")

    def _opened(self) -> None:
        self._is_open = self._opened_before = True
        self._fleet.opened += 1
        self._write(self._capacity())
        waiting, self._unanswered = self._unanswered, {}
        for results in waiting.values():
            self._report(results)

    def _take(self, executions: list[Any]) -> None:
        self._received += len(executions)
        new = [e for e in executions if e[0] not in self._running]
        if new:
            self._held += len(new)
            self._running += [e[0] for e in new]
            self._fleet.loop.call_later(self._fleet.hold_s, self._ended, new)
        if len(new) < len(executions):  # the api counts one twice
            self._write(self._capacity())

    def _answered(self, number: int, body: Any) -> None:
        if number == self._beat_number:
            self._beat_number = 0
            self._renewed(body)
        elif (results := self._unanswered.pop(number, None)) is not None:
            self._fleet.done += len(results) - len(body["stale"])
            for result in results:
                self._running.remove(result.execution_id)

    def _rejected(self, message: dict[str, Any]) -> None:
        number = message["number"]
        results = self._unanswered.pop(number, None)
        if message["status"] != 503:
            self._fleet.failed.append(f"stream: {message['status']} {message['detail']}")
            return
        self._fleet.refused += 1
        if results is not None:
            self._fleet.loop.call_later(RETRY_S, self._report, results)
        elif number == self._beat_number:
            self._beat_number = 0
            self._fleet.loop.call_later(RETRY_S, self._renew)


WAYS: dict[str, type[Simulated]] = {"stream": Streaming, "poll": Polling}


class Fleet:
    def __init__(self, url: str, token: str, net: str, hold_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.hold_s = hold_s
        self.registered = self.opened = self.done = self.broken = self.refused = 0
        self.failed: list[str] = []
        self.beats: list[float] = []
        self.ending = False
        self._at, self._net, self._hosts = urlsplit(url), net, cycle(range(1, 251))
        self._tasks: set[asyncio.Task[None]] = set()
        headers = (
            f"HTTP/1.1\r\nHost: {self._at.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Mainspring-Protocol: {wire.PROTOCOL}\r\n"
        )
        self.head = f"{headers}Content-Type: application/json\r\nContent-Length: "
        self.stream_head = f"POST /api/v1/worker/stream {headers}Transfer-Encoding: chunked\r\n\r\n".encode()

    def connect(self, protocol: Callable[[], P], then: Callable[[P], None], failed: Callable[[], None]) -> None:
        task = self.loop.create_task(self._connect(protocol, then, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, protocol: Callable[[], P], then: Callable[[P], None], failed: Callable[[], None]) -> None:
        try:
            # From many addresses: one has too few ports for a fleet that reconnects for each heartbeat.
            _, connection = await self.loop.create_connection(
                protocol,
                self._at.hostname or "",
                self._at.port or 80,
                local_addr=(f"{self._net}.{next(self._hosts)}", 0),
            )
        except OSError:
            failed()
        else:
            then(connection)

    def figures(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "registered": self.registered,
            "opened": self.opened,
            "failed": len(self.failed),
            "why": next(iter(self.failed), ""),
            "broken": self.broken,
            "refused": self.refused,
            "done": self.done,
            "beats": len(self.beats),
            "p50": quantile(self.beats, 0.5) if self.beats else 0.0,
            "p99": quantile(self.beats, 0.99) if self.beats else 0.0,
            "max": max(self.beats, default=0.0),
            "cpu_s": used.ru_utime + used.ru_stime,
        }


async def simulate(url: str, token: str, way: str, first: int, count: int, over_s: float, hold_s: float) -> None:
    """Start the workers over some seconds, run until SIGTERM, and print the figures as the last line."""
    fleet = Fleet(url, token, f"127.1.{first % 250}", hold_s)
    for n in range(count):
        fleet.loop.call_later(over_s * n / count, WAYS[way](fleet, first + n).begin)
    over = asyncio.Event()
    fleet.loop.add_signal_handler(signal.SIGTERM, over.set)
    # Reset the heartbeat figures: those during the start are not measured.
    fleet.loop.add_signal_handler(signal.SIGUSR1, fleet.beats.clear)
    await over.wait()
    fleet.ending = True
    print(json.dumps(fleet.figures()), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    url, token, way, first, count, over_s, hold_s = sys.argv[1:]
    uvloop.run(simulate(url, token, way, int(first), int(count), float(over_s), float(hold_s)))

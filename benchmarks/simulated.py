"""Simulated workers, thousands in a process: they poll, send heartbeats and report results over real HTTP.

Each has two connections, like a real worker: one polls and reports results, one sends heartbeats. There are no
coroutines and no HTTP client, to keep the simulation cheap; its CPU time is reported at the end.
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
from typing import Any
from urllib.parse import urlsplit

import uvloop
from harness import quantile

from mainspring import wire
from mainspring.codec import encode

SLOTS = 4
WAIT_S = 30.0
RETRY_S = 1.0
"""After a request that was refused or cut off, as a real worker waits."""

Then = Callable[[Any], None]


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
            self._fleet.connect(self)
        else:
            self._write()

    def _write(self) -> None:
        assert self._asked is not None and self._connection is not None and self._connection.transport is not None
        self._connection.transport.write(self._asked[1])

    def connected(self, connection: Connection) -> None:
        self._connection = connection
        self._write()

    def _again(self) -> None:
        self._sent = False
        self._fleet.loop.call_later(RETRY_S, self._send)

    def not_connected(self) -> None:
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
            assert connection.transport is not None
            connection.transport.abort()
            self._connection = None
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
        self._running: list[str] = []
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
        self._poll()

    def _poll(self) -> None:
        self._work.ask("poll", wire.Poll(session_id=self._session, free=SLOTS, wait_s=WAIT_S), self._polled)

    def _polled(self, answer: dict[str, Any]) -> None:
        if not answer["executions"]:
            self._poll()
            return
        self._running = [e[0] for e in answer["executions"]]
        hold_ms = int(self._fleet.hold_s * 1000)
        results = [
            wire.Result(execution_id=e[0], attempt=e[1], outcome="succeeded", duration_ms=hold_ms)
            for e in answer["executions"]
        ]
        body = wire.Results(session_id=self._session, results=results)
        self._fleet.loop.call_later(self._fleet.hold_s, self._work.ask, "results", body, self._settled)

    def _settled(self, answer: dict[str, Any]) -> None:
        self._fleet.done += len(self._running) - len(answer["stale"])
        self._running = []
        self._poll()

    def _beat(self) -> None:
        self._rested = not self._running and not self._rested
        if self._rested:  # as a real worker without executions
            self._fleet.loop.call_later(self._every_s, self._beat)
            return
        self._begun = time.perf_counter()
        beat = wire.Heartbeat(session_id=self._session, running=self._running)  # type: ignore[arg-type]
        self._heart.ask("heartbeat", beat, self._answered)

    def _answered(self, _: dict[str, Any]) -> None:
        self._fleet.beats.append(time.perf_counter() - self._begun)
        self._fleet.loop.call_later(self._every_s, self._beat)


class Fleet:
    def __init__(self, url: str, token: str, net: str, hold_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.hold_s = hold_s
        self.registered = self.done = self.broken = self.refused = 0
        self.failed: list[str] = []
        self.beats: list[float] = []
        self.ending = False
        self._at, self._net, self._hosts = urlsplit(url), net, cycle(range(1, 251))
        self._tasks: set[asyncio.Task[None]] = set()
        self.head = (
            f"HTTP/1.1\r\nHost: {self._at.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nMainspring-Protocol: {wire.PROTOCOL}\r\nContent-Length: "
        )

    def connect(self, line: Line) -> None:
        task = self.loop.create_task(self._connect(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, line: Line) -> None:
        try:
            # From many addresses: one has too few ports for a fleet that reconnects for each heartbeat.
            _, connection = await self.loop.create_connection(
                lambda: Connection(line),
                self._at.hostname or "",
                self._at.port or 80,
                local_addr=(f"{self._net}.{next(self._hosts)}", 0),
            )
        except OSError:
            line.not_connected()
        else:
            line.connected(connection)

    def figures(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "registered": self.registered,
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


async def simulate(url: str, token: str, first: int, count: int, over_s: float, hold_s: float) -> None:
    """Start the workers over some seconds, run until SIGTERM, and print the figures as the last line."""
    fleet = Fleet(url, token, f"127.1.{first % 250}", hold_s)
    for n in range(count):
        fleet.loop.call_later(over_s * n / count, Simulated(fleet, first + n).begin)
    over = asyncio.Event()
    fleet.loop.add_signal_handler(signal.SIGTERM, over.set)
    # Reset the heartbeat figures: those during the start are not measured.
    fleet.loop.add_signal_handler(signal.SIGUSR1, fleet.beats.clear)
    await over.wait()
    fleet.ending = True
    print(json.dumps(fleet.figures()), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    url, token, first, count, over_s, hold_s = sys.argv[1:]
    uvloop.run(simulate(url, token, int(first), int(count), float(over_s), float(hold_s)))

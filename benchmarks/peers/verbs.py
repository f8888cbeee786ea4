"""The command line that every peer's script has: what the benchmark can ask of a job queue.

    peer.py prepare                  create tables
    peer.py work latency|drain       run a worker until SIGTERM
    peer.py latency N WARM_UP RATE   submit N jobs at RATE per second; each carries the moment before its submission
    peer.py singles N IN_FLIGHT      submit N jobs one by one, IN_FLIGHT at a time; print how many per second
    peer.py bulk N BATCH             submit N jobs in batches over one connection; print how many per second
    peer.py later N BATCH DUE        submit N jobs that become due at an instant (seconds since 1970)
    peer.py flow chain|fan N TIMES   run N functions one after another, or at once and one at their end; again and again

`BENCH_DSN` has the address of the database or of Redis. The function of a job appends its times to `BENCH_FILE`. Only
the standard library is imported here, as each peer has its own virtual environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DSN = os.environ.get("BENCH_DSN", "")
FILE = os.environ.get("BENCH_FILE", "")
WARM_UP = -1.0  # the moment that a job carries if it is not to be counted
FIRST = 5  # submissions for each in flight that open connections and are not timed
_output: dict[str, int] = {}


@dataclass
class Client:
    """Submits one job with its moment, or a number of jobs at once. Both are coroutines, or neither is."""

    one: Callable[[float], Any]
    many: Callable[[int], Any] | None = None
    flow: Callable[[str, int, float], Any] | None = None  # its last function records the moment it is given


@dataclass
class Peer:
    """`connect` gives a client with the number of connections that it is told."""

    prepare: Callable[[], Awaitable[None] | None]
    work: Callable[[str], Awaitable[None] | None]
    connect: Callable[[int], AbstractAsyncContextManager[Client] | AbstractContextManager[Client]]


def record(sent: float, at: float) -> None:
    """Append when a job was submitted and when its function began; processes may do so at the same time."""
    if "file" not in _output:
        _output["file"] = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_output["file"], b"%.6f %.6f\n" % (sent, at))


def record_first() -> None:
    """Append the moment of this process's first call, and nothing in later ones."""
    if "file" not in _output:
        record(time.time(), time.time())


def main(peer: Peer, argv: list[str] | None = None) -> None:
    verb, *rest = argv or sys.argv[1:]
    if verb in ("prepare", "work"):
        done = getattr(peer, verb)(*rest)
        if done is not None:
            _run(done)
        return
    kind = rest.pop(0) if verb == "flow" else ""
    n, *more = [int(word) for word in rest]
    connected = peer.connect(more[0] if verb == "singles" else 4 if verb == "latency" else 1)
    if isinstance(connected, AbstractAsyncContextManager):
        _run(_asynchronous(connected, verb, n, more))
    else:
        _synchronous(connected, verb, n, more, kind)


def _run(work: Awaitable[None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)  # type: ignore[arg-type]
    else:
        uvloop.run(work)


async def _asynchronous(connected: AbstractAsyncContextManager[Client], verb: str, n: int, more: list[int]) -> None:
    async with connected as client:
        if verb == "latency":
            warm_up, rate = more
            await client.one(WARM_UP)
            await asyncio.to_thread(until_recorded, 1)
            await _paced(client, warm_up, rate, counted=False)
            with _measured():
                await _paced(client, n, rate, counted=True)
        elif verb == "singles":

            async def submit(left: Iterator[int]) -> None:
                for _ in left:
                    await client.one(time.time())

            async def all_of(numbers: Iterator[int]) -> None:
                await asyncio.gather(*[submit(numbers) for _ in range(more[0])])

            await all_of(iter(range(FIRST * more[0])))
            with _rate(n):
                await all_of(iter(range(n)))
        else:
            assert client.many is not None
            with _rate(n):
                for first in range(0, n, more[0]):
                    await client.many(min(more[0], n - first))


async def _paced(client: Client, n: int, rate: int, *, counted: bool) -> None:
    async def one(due: float) -> None:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await client.one(time.time() if counted else WARM_UP)

    begin = time.perf_counter() + 0.1
    await asyncio.gather(*[one(begin + number / rate) for number in range(n)])


def _synchronous(connected: AbstractContextManager[Client], verb: str, n: int, more: list[int], kind: str = "") -> None:
    with connected as client:
        if verb == "latency":
            warm_up, rate = more
            client.one(WARM_UP)
            until_recorded(1)
            _paced_in_turn(client, warm_up, rate, counted=False)
            with _measured():
                _paced_in_turn(client, n, rate, counted=True)
        elif verb == "flow":
            assert client.flow is not None
            for number in range(more[0] + 1):  # the first one warms up
                client.flow(kind, n, time.time() if number else WARM_UP)
                until_recorded(number + 1)
        elif verb == "singles":

            def submit(left: Iterator[int]) -> None:
                for _ in left:
                    client.one(time.time())

            def all_of(numbers: Iterator[int]) -> None:
                for future in [threads.submit(submit, numbers) for _ in range(more[0])]:
                    future.result()

            with ThreadPoolExecutor(more[0]) as threads:
                all_of(iter(range(FIRST * more[0])))
                with _rate(n):
                    all_of(iter(range(n)))
        else:
            assert client.many is not None
            with _rate(n):
                for first in range(0, n, more[0]):
                    client.many(min(more[0], n - first))


def _paced_in_turn(client: Client, n: int, rate: int, *, counted: bool) -> None:
    begin = time.perf_counter() + 0.1
    for number in range(n):
        time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        client.one(time.time() if counted else WARM_UP)


def until_recorded(lines: int) -> None:
    """Wait until functions have appended this many lines: until then the worker is starting."""
    for _ in range(6000):
        if Path(FILE).exists() and Path(FILE).read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.01)
    raise TimeoutError("the worker did not execute the first job within a minute")


class _measured:
    """Prints a line at the begin of what is measured, and at its end the CPU seconds of this process meanwhile."""

    def __enter__(self) -> None:
        print("begin", flush=True)
        self.before = time.process_time()

    def __exit__(self, *error: object) -> None:
        print(json.dumps({"cpu_s": time.process_time() - self.before}), flush=True)


class _rate:
    """Prints how many per second."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        print(json.dumps({"per_s": self.n / (time.perf_counter() - self.begun)}), flush=True)

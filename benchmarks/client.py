"""CPU per call of HTTP clients and of the Python client, side by side, and the time to import them.

One process with a loopback server answers every request with the same execution. The clients take turns, in rounds; the
median of the rounds is published. aiohttp is measured if it is installed.

    python benchmarks/client.py
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID

from harness import publish

from mainspring import wire
from mainspring.client import AsyncClient, Client
from mainspring.codec import encode
from mainspring.http_client import BlockingNetwork, HttpClient, finish

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
CALLS = int(os.environ.get("BENCH_CALLS", "2000"))
PATH = "/api/v1/jobs/report/trigger"
BODY = b'{"params":{"region":"eu"}}'
HEADERS = {"Authorization": f"Bearer {'x' * 40}", "User-Agent": "mainspring/0.1.0", "Accept": "application/json"}
JSON = {"Content-Type": "application/json"}
IMPORTS = ["mainspring.client", "mainspring.http_client", "httpx2", "aiohttp"]

SERVER = """
import asyncio, sys, httptools, uvloop
BODY = sys.stdin.buffer.read()
HEADERS = [
    b"HTTP/1.1 200 OK",
    b"date: Mon, 16 Nov 2026 00:00:00 GMT",
    b"server: mainspring",
    b"content-length: %d" % len(BODY),
    b"content-type: application/json",
    b"cache-control: no-store",
    b"x-request-id: 0193a4c1",
    b"",
    BODY,
]
ANSWER = b"\\r\\n".join(HEADERS)

class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_complete(self):
        self.transport.write(ANSWER)

async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

uvloop.run(main())
"""

Call = Callable[[], Awaitable[object]]


def main() -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(encode(_execution()))
    server.stdin.close()
    url = f"http://127.0.0.1:{int(server.stdout.readline())}"
    try:
        used: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, measure in _clients().items():
                used.setdefault(name, []).append(measure(url))
    finally:
        server.kill()
        server.wait()
    imports = {name: _import_ms(name) for name in IMPORTS if importlib.util.find_spec(name) is not None}
    figures = {name: round(sorted(found)[len(found) // 2], 1) for name, found in used.items()}
    lines = [
        "| client | CPU µs per call |",
        "|---|---|",
        *(f"| {name} | {value:g} |" for name, value in figures.items()),
    ]
    lines += [
        "",
        "| module | CPU ms to import |",
        "|---|---|",
        *(f"| {name} | {value:.0f} |" for name, value in imports.items()),
    ]
    publish("client", lines, {**figures, **{f"import {name}": round(value, 1) for name, value in imports.items()}})


def _clients() -> dict[str, Callable[[str], float]]:
    found: dict[str, Callable[[str], float]] = {
        "AsyncClient.trigger": lambda url: asyncio.run(_client(url, "trigger")),
        "AsyncClient.execution": lambda url: asyncio.run(_client(url, "execution")),
        "Client.trigger": _sync_client,
        "HttpClient, asyncio": lambda url: asyncio.run(_http_client(url)),
        "HttpClient, blocking": _blocking,
    }
    if importlib.util.find_spec("httpx2") is not None:
        found["httpx2, asyncio"] = lambda url: asyncio.run(_httpx(url))
    if importlib.util.find_spec("aiohttp") is not None:
        found["aiohttp"] = lambda url: asyncio.run(_aiohttp(url))
    return found


async def _cpu_us(call: Call, calls: int = CALLS) -> float:
    await call()
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls * 1e6


async def _client(url: str, method: str) -> float:
    request = wire.RunNow(params={"region": "eu"})
    execution_id = _execution().execution_id
    async with AsyncClient(url, "x" * 40) as client:
        if method == "trigger":
            return await _cpu_us(lambda: client.trigger("report", request))
        return await _cpu_us(lambda: client.execution(execution_id))


def _sync_client(url: str) -> float:
    request = wire.RunNow(params={"region": "eu"})
    with Client(url, "x" * 40) as client:
        client.trigger("report", request)
        began = time.process_time()
        for _ in range(CALLS):
            client.trigger("report", request)
        return (time.process_time() - began) / CALLS * 1e6


async def _http_client(url: str) -> float:
    client = HttpClient(url, HEADERS)
    try:
        return await _cpu_us(lambda: client.request("POST", PATH, BODY, headers=JSON))
    finally:
        client.close()


def _blocking(url: str) -> float:
    client = HttpClient(url, HEADERS, network=BlockingNetwork())
    try:
        return finish(_cpu_us(lambda: client.request("POST", PATH, BODY, headers=JSON)))
    finally:
        client.close()


async def _httpx(url: str) -> float:
    import httpx2

    async with httpx2.AsyncClient(base_url=url, headers=HEADERS) as client:
        return await _cpu_us(lambda: client.post(PATH, content=BODY, headers=JSON), CALLS // 4)


async def _aiohttp(url: str) -> float:
    import aiohttp

    async with aiohttp.ClientSession(url, headers=HEADERS) as session:

        async def call() -> bytes:
            async with session.post(PATH, data=BODY, headers=JSON) as response:
                return await response.read()

        return await _cpu_us(call)


def _execution() -> wire.Execution:
    at = datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC)
    number = UUID("0193a4c1-2b4d-8a1f-a000-000000000001")
    return wire.Execution(
        execution_id=number, job_id=number, job="report", version=1, state="queued", trigger="manual", queue="short",
        priority=5, attempt=0, fire_at=at, due_at=at, queued_at=at, started_at=None, finished_at=None, duration_ms=None,
        exit_code=None, worker=None, cancelling=False, reason=None, error=None, result=None, params={"region": "eu"},
        created_by="me", fires=1,
    )  # fmt: skip


def _import_ms(module: str) -> float:
    """Return the CPU time of `import module` in a new process: the least of seven, without the interpreter's start."""
    return min(_process_ms(f"import {module}") for _ in range(7)) - min(_process_ms("pass") for _ in range(7))


def _process_ms(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


if __name__ == "__main__":
    main()

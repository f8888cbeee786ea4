"""What a client may hold and send before it is authenticated, over raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from mainspring.api.connection import MAX_PIPELINED, ClientConnection, ConnectionLimits
from mainspring.api.service import HttpServer
from mainspring.domain.address import read_networks

pytestmark = pytest.mark.anyio

SHORT_S = 0.3
LONG_S = 60.0
PATIENT = ConnectionLimits(head_s=LONG_S, body_s=LONG_S, idle_s=LONG_S)
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Application:
    """`/`: refuse without reading the body. `/in`: authenticate, then read it. `/out`: send more than anybody reads."""

    def __init__(self) -> None:
        self.served = 0
        self.disconnected = asyncio.Event()
        self.release = asyncio.Event()
        self.entered = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served += 1
        request = Request(scope, receive)
        match scope["path"]:
            case "/in":
                scope["connection"].admit()
                try:
                    body = await request.body()
                except ClientDisconnect:
                    self.disconnected.set()
                    return
                response = PlainTextResponse(f"{len(body)} bytes")
            case "/wait":
                self.entered.set()
                await self.release.wait()
                response = PlainTextResponse("waited")
            case "/out":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while (await asyncio.wait_for(self._fill(scope, send), LONG_S)) is None:
                    pass
                return
            case "/who":
                response = PlainTextResponse(f"{scope['client'][0]} {scope['scheme']}")
            case _:
                response = PlainTextResponse("no", 401)
        await response(scope, receive, send)

    async def _fill(self, scope: Scope, send: Send) -> bool | None:
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        if scope["connection"].transport.is_closing():
            self.disconnected.set()
            return True
        return None


@contextlib.asynccontextmanager
async def served(limits: ConnectionLimits, app: Application | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(app or Application(), host="127.0.0.1", port=0, limits=limits)
    await server.start()
    await server.ready()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def connected(server: HttpServer, count: int = 1) -> AsyncIterator[list[Line]]:
    lines = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(count)]
    try:
        yield lines
    finally:
        for _, writer in lines:
            writer.close()


async def read_all(line: Line) -> bytes:
    async with asyncio.timeout(LONG_S):
        with contextlib.suppress(ConnectionError):
            return await line[0].read()
    return b""


async def read_one(line: Line) -> bytes:
    """Read one response of a connection that stays open."""
    async with asyncio.timeout(LONG_S):
        head = await line[0].readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        return head + await line[0].readexactly(length)


async def send_until_closed(line: Line, part: bytes) -> bytes:
    """Send a little at a time until the server closes the connection; return what it has sent."""
    reading = asyncio.create_task(read_all(line))
    with contextlib.suppress(ConnectionError):
        while not reading.done():
            line[1].write(part)
            await line[1].drain()
            await asyncio.wait({reading}, timeout=0.01)
    return await reading


# Heads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
    ],
    ids=["long header", "long path", "many headers", "a great many headers"],
)
async def test_a_large_head_is_refused_before_it_is_served(head: bytes) -> None:
    app = Application()
    async with served(PATIENT, app) as server, connected(server) as (line,):
        line[1].write(head)
        answer = await read_all(line)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"x-content-type-options: nosniff" in answer and b"cache-control: no-store" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "head_too_large"
    assert app.served == 0


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n"])
async def test_a_head_without_an_end_is_refused_at_the_limit(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    received = count_received(monkeypatch)
    async with served(replace(PATIENT, linger_bytes=0), Application()) as server, connected(server) as (line,):
        line[1].write(start)
        await send_until_closed(line, b"x" * 1000 if start[-1:] != b"\n" else b"x: y\r\n" * 100)
        assert sum(received) < 10 * PATIENT.head_bytes


@pytest.mark.parametrize("part", [b"", b"G", b"GET / HTTP/1.1\r\nX: y", b"\r\n"])
async def test_a_head_that_does_not_arrive_is_given_up(part: bytes) -> None:
    limits = replace(PATIENT, head_s=SHORT_S)
    async with served(limits) as server, connected(server) as (line,):
        line[1].write(part)
        answer = await read_all(line)
        assert answer.startswith(b"HTTP/1.1 408 ") if part else answer == b""


@pytest.mark.parametrize("part", [b"x", b"\r\n"])
async def test_bytes_now_and_then_do_not_extend_the_deadline(part: bytes) -> None:
    limits = replace(PATIENT, head_s=SHORT_S)
    async with served(limits) as server, connected(server) as (line,):
        if part == b"x":
            line[1].write(b"GET /")
        await send_until_closed(line, part)


async def test_the_deadline_also_holds_for_the_next_request() -> None:
    limits = replace(PATIENT, head_s=SHORT_S)
    async with served(limits) as server, connected(server) as (line,):
        line[1].write(GET)
        assert (await read_one(line)).startswith(b"HTTP/1.1 401 ")
        line[1].write(b"\r\n")
        assert (await read_all(line)).startswith(b"HTTP/1.1 408 ")


async def test_garbage_is_answered_once() -> None:
    async with served(PATIENT) as server, connected(server) as (line,):
        line[1].write(b"\x16\x03\x01 this is not http\r\n\r\n")
        assert (await read_all(line)).startswith(b"HTTP/1.1 400 ")


# Bodies ----------------------------------------------------------------------------------------------


def count_received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    received: list[int] = []
    original = ClientConnection.data_received

    def data_received(self: ClientConnection, data: bytes) -> None:
        received.append(len(data))
        original(self, data)

    monkeypatch.setattr(ClientConnection, "data_received", data_received)
    return received


@pytest.mark.parametrize("framing", [b"Content-Length: 50000000", b"Transfer-Encoding: chunked"])
async def test_a_refused_body_is_not_read(monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    received = count_received(monkeypatch)
    part = b"x" * 65_536 if b"Length" in framing else b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with served(PATIENT) as server, connected(server) as (line,):
        line[1].write(b"POST / HTTP/1.1\r\nHost: here\r\n" + framing + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(700):
                line[1].write(part)
                await line[1].drain()
        assert sum(received) < 1_000_000, "a fiftieth of what was to come"


async def test_a_client_can_read_why_its_body_was_refused() -> None:
    async with served(PATIENT) as server, connected(server) as (line,):
        line[1].write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert (await read_all(line)).startswith(b"HTTP/1.1 401 ")


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    app = Application()
    async with served(replace(PATIENT, body_s=SHORT_S), app) as server, connected(server) as (line,):
        line[1].write(b"POST /in HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n")
        answer = await send_until_closed(line, b"x")
        assert answer.startswith(b"HTTP/1.1 408 ") or answer == b""
        await asyncio.wait_for(app.disconnected.wait(), LONG_S)


async def test_a_body_in_time_is_served() -> None:
    async with served(PATIENT) as server, connected(server) as (line,):
        line[1].write(b"POST /in HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\nabc")
        await asyncio.sleep(0)
        line[1].write(b"def")
        assert (await read_one(line)).endswith(b"6 bytes")


async def test_a_refusal_leaves_the_next_request_alone() -> None:
    app = Application()
    async with served(PATIENT, app) as server, connected(server) as (line,):
        line[1].write(b"GET /wait HTTP/1.1\r\nHost: here\r\n\r\nPOST /in HTTP/1.1\r\nContent-Length: 6\r\n\r\nabc")
        await app.entered.wait()
        app.release.set()
        assert (await read_one(line)).endswith(b"waited")
        line[1].write(b"def")
        assert (await read_one(line)).endswith(b"6 bytes")


# Connections -----------------------------------------------------------------------------------------


async def test_a_stranger_does_not_keep_an_idle_connection() -> None:
    async with served(replace(PATIENT, idle_s=SHORT_S)) as server, connected(server, 2) as (known, stranger):
        known[1].write(b"GET /in HTTP/1.1\r\nHost: here\r\n\r\n")
        await read_one(known)
        stranger[1].write(GET)
        assert (await read_all(stranger)).startswith(b"HTTP/1.1 401 ")
        known[1].write(GET)
        assert (await read_one(known)).startswith(b"HTTP/1.1 401 "), "still open"


@pytest.mark.parametrize("cap", ["strangers_per_address", "strangers"])
async def test_strangers_take_the_place_of_strangers_only(cap: str) -> None:
    limits = replace(PATIENT, strangers=5) if cap == "strangers" else replace(PATIENT, strangers_per_address=5)
    async with served(limits) as server, connected(server, 4) as known:
        for line in known:
            line[1].write(b"GET /in HTTP/1.1\r\nHost: here\r\n\r\n")
            await read_one(line)
        async with connected(server, 5) as strangers, connected(server, 1) as (late,):
            assert await read_all(strangers[0]) == b"", "the oldest made room"
            for line in [late, *strangers[1:]]:
                line[1].write(GET)
                assert (await read_one(line)).startswith(b"HTTP/1.1 401 ")
        for line in known:
            line[1].write(GET)
            assert (await read_one(line)).startswith(b"HTTP/1.1 401 ")
    assert not server.strangers.everyone and not server.strangers.by_address


async def test_without_an_idle_stranger_the_next_is_refused() -> None:
    app = Application()
    limits = ConnectionLimits(head_s=LONG_S, strangers_per_address=1)
    async with served(limits, app) as server, connected(server) as (busy,):
        busy[1].write(b"GET /wait HTTP/1.1\r\nHost: here\r\n\r\n")
        await app.entered.wait()
        async with connected(server) as (late,):
            answer = await read_all(late)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in answer
        app.release.set()
        assert (await read_one(busy)).endswith(b"waited")


async def test_pipelined_requests_are_bounded() -> None:
    app = Application()
    async with served(PATIENT, app) as server, connected(server) as (line,):
        line[1].write(b"GET /wait HTTP/1.1\r\nHost: here\r\n\r\n" + GET * (MAX_PIPELINED + 1))
        await read_all(line)
        app.release.set()
        assert app.served <= 1
    async with served(PATIENT, app) as server, connected(server) as (line,):
        line[1].write(GET * MAX_PIPELINED)
        for _ in range(MAX_PIPELINED):
            assert (await read_one(line)).startswith(b"HTTP/1.1 401 ")


async def test_a_client_that_does_not_read_is_given_up() -> None:
    app = Application()
    async with served(replace(PATIENT, stalled_s=SHORT_S), app) as server, connected(server) as (line,):
        line[0]._transport.pause_reading()  # type: ignore[attr-defined]
        line[1].write(b"GET /out HTTP/1.1\r\nHost: here\r\n\r\n")
        await asyncio.wait_for(app.disconnected.wait(), LONG_S)


# Proxies ---------------------------------------------------------------------------------------------

FORWARDED = (
    b"GET /who HTTP/1.1\r\nHost: here\r\nX-Forwarded-For: 198.51.100.7, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n"
)


@pytest.mark.parametrize("proxies", [(), ("192.0.2.0/24",)])
async def test_forwarded_headers_of_others_do_not_count(
    proxies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    limits = ConnectionLimits(trusted_proxies=read_networks(proxies))
    async with served(limits) as server, connected(server) as (line,):
        line[1].write(FORWARDED)
        assert (await read_one(line)).endswith(b"127.0.0.1 http")


async def test_forwarded_headers_of_a_configured_proxy_count() -> None:
    limits = ConnectionLimits(trusted_proxies=read_networks(["127.0.0.0/8"]), strangers_per_address=1)
    async with served(limits) as server, connected(server, 3) as lines:
        for line in lines:  # a proxy speaks for many, so its connections are not counted as those of one address
            line[1].write(FORWARDED)
            assert (await read_one(line)).endswith(b"203.0.113.9 https"), "the nearest address that is not a proxy"


def test_the_connections_of_an_ipv6_site_count_as_one_address() -> None:
    server = HttpServer(Application(), host="127.0.0.1", port=0)
    one, two = map(server.strangers.counted_address, ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"))
    assert one == two == "2001:db8:1:2::/64"
    assert server.strangers.counted_address("::ffff:192.0.2.1") == "192.0.2.1"

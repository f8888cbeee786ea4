"""Keep-alive connections, with a server that answers as the test says, in an event loop and without one."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mainspring.http_client import (
    BlockingNetwork,
    ConnectFailed,
    ConnectionLost,
    HttpClient,
    HttpError,
    InvalidRequest,
    ResponseTooLarge,
    TimedOut,
    finish,
)
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, ApiUnavailable, Refused

pytestmark = pytest.mark.anyio
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
ABANDONED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast"
"""As an answer: send it, then close the connection without having announced it."""
CLOSE = b""
"""As an answer: close the connection."""


class Server:
    """Counts connections, records requests, and sends prepared answers."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.requests: list[bytes] = []
        self.answers: list[bytes] = []
        self.repeat: bytes | None = None  # the answer once there are no others
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                sizes = head.lower().split(b"content-length: ")[1:]
                self.requests.append(head + await reader.readexactly(int(sizes[0].split(b"\r\n")[0]) if sizes else 0))
                self.asked.set()
                answer = self.answers.pop(0) if self.answers else self.repeat
                if answer is None:
                    continue
                writer.write(answer)
                if answer in (CLOSE, CUT_OFF, CLOSING, ABANDONED):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.open -= 1
            writer.close()
            self.closed.set()


class KeepAlive(BaseHTTPRequestHandler):
    """A handler that keeps its connections, for a server in a thread."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving_in_a_thread() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), KeepAlive)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Calls:
    """`HttpClient` in the event loop or on blocking connections, behind the same coroutines."""

    def __init__(self, url: str, blocking: bool, **options: Any) -> None:
        self._blocking = blocking
        network = BlockingNetwork() if blocking else None
        self.client = HttpClient(url, {"Authorization": "Bearer x"}, network=network, **options)

    async def request(self, method: str, target: str, body: bytes | None = None, **options: Any) -> tuple[int, bytes]:
        call = self.client.request(method, target, body, **options)
        response = await (asyncio.to_thread(finish, call) if self._blocking else call)
        return response.status, response.body

    async def post(self, target: str, body: bytes, **options: Any) -> tuple[int, bytes]:
        return await self.request("POST", target, body, **options)


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@asynccontextmanager
async def served(
    *answers: bytes, blocking: bool = False, prefix: str = "", repeat: bytes | None = None, **options: Any
) -> AsyncIterator[tuple[Server, Calls]]:
    server = Server()
    server.answers, server.repeat = list(answers), repeat
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{prefix}"
    calls = Calls(server.url, blocking, **options)
    try:
        yield server, calls
    finally:
        calls.client.close()
        listening.close()
        await listening.wait_closed()


async def test_a_connection_is_reused(blocking: bool) -> None:
    async with served(OK, OK, OK, blocking=blocking) as (server, calls):
        for path, body in (("/a", b"1"), ("/b", b""), ("/c", b"333")):
            assert await calls.post(path, body) == (200, b"hi")
        assert server.connections == 1
        first, second, third = server.requests
        assert first.startswith(b"POST /a HTTP/1.1\r\n") and first.endswith(b"\r\n\r\n1")
        assert b"\r\nAuthorization: Bearer x\r\n" in first and b"\r\nHost: 127.0.0.1:" in first
        assert second.endswith(b"\r\n\r\n") and third.endswith(b"\r\n\r\n333")


async def test_a_base_path_and_a_chunked_response(blocking: bool) -> None:
    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    async with served(chunked, OK, blocking=blocking, prefix="/mainspring/") as (server, calls):
        assert await calls.post("/api/v1/x", b"{}") == (201, b"abcdefg")
        assert server.requests[0].startswith(b"POST /mainspring/api/v1/x HTTP/1.1\r\n")
        await calls.post("/", b"")
        assert server.connections == 1


async def test_concurrent_requests_have_their_own_connections() -> None:
    async with served(OK, OK, OK) as (server, calls):
        await asyncio.gather(calls.post("/", b""), calls.post("/", b""))
        await calls.post("/", b"")
        assert server.connections == 2


@pytest.mark.parametrize("answer", [CLOSE, CUT_OFF, b"hello, stranger\r\n\r\n"], ids=["closed", "cut off", "not HTTP"])
async def test_no_response_raises_and_the_next_request_works(answer: bytes, blocking: bool) -> None:
    async with served(answer, OK, blocking=blocking) as (server, calls):
        with pytest.raises(HttpError):
            await calls.post("/", b"")
        assert await calls.post("/", b"") == (200, b"hi")
        assert server.connections == 2


async def test_a_server_that_closes_after_the_response(blocking: bool) -> None:
    async with served(CLOSING, OK, blocking=blocking) as (server, calls):
        await calls.post("/", b"")
        await calls.post("/", b"")
        assert server.connections == 2


@pytest.mark.parametrize(("method", "options"), [("GET", {}), ("PUT", {}), ("POST", {"repeatable": True})])
async def test_a_repeatable_request_on_a_stale_connection_is_sent_again(
    method: str, options: dict[str, Any], blocking: bool
) -> None:
    async with served(OK, CLOSE, OK, blocking=blocking) as (server, calls):
        await calls.request(method, "/1")
        assert await calls.request(method, "/2", **options) == (200, b"hi")
        assert [request.split()[1] for request in server.requests] == [b"/1", b"/2", b"/2"]


async def test_a_connection_that_the_server_closed_is_not_used_for_a_post(blocking: bool) -> None:
    async with served(ABANDONED, OK, blocking=blocking) as (server, calls):
        await calls.post("/1", b"")
        await server.closed.wait()
        assert await calls.post("/2", b"") == (200, b"hi")
        assert server.connections == 2


async def test_a_post_that_may_have_been_processed_is_not_sent_again(blocking: bool) -> None:
    async with served(OK, CLOSE, OK, blocking=blocking) as (server, calls):
        await calls.post("/1", b"")
        with pytest.raises(ConnectionLost):
            await calls.post("/2", b"")
        assert len(server.requests) == 2


async def test_nothing_is_sent_again_once_part_of_the_response_arrived(blocking: bool) -> None:
    async with served(OK, CUT_OFF, OK, blocking=blocking) as (server, calls):
        await calls.request("GET", "/1")
        with pytest.raises(ConnectionLost):
            await calls.request("GET", "/2")
        assert len(server.requests) == 2


async def test_a_new_connection_that_breaks_is_not_retried(blocking: bool) -> None:
    async with served(CLOSE, OK, blocking=blocking) as (server, calls):
        with pytest.raises(ConnectionLost):
            await calls.request("GET", "/")
        assert server.connections == 1


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with served() as (server, calls):
        asking = asyncio.create_task(calls.post("/slow", b""))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.answers = [OK]
        assert await calls.post("/", b"") == (200, b"hi")
        assert server.connections == 2


async def test_no_response_in_time(blocking: bool) -> None:
    async with served(blocking=blocking) as (_, calls):
        with pytest.raises(TimedOut, match=r"within 0\.05 s"):
            await calls.post("/", b"", timeout_s=0.05)


async def test_a_shorter_timeout_after_a_longer_one(blocking: bool) -> None:
    async with served(OK, blocking=blocking) as (_, calls):
        await calls.post("/", b"", timeout_s=600)
        with pytest.raises(TimedOut):
            await calls.post("/", b"", timeout_s=0.05)


async def test_a_response_that_is_too_large(blocking: bool) -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + bytes(2000)
    async with served(large, large, OK, blocking=blocking) as (server, calls):
        with pytest.raises(ResponseTooLarge, match="more than 1,999 bytes"):
            await calls.request("GET", "/", max_bytes=1999)
        assert (await calls.request("GET", "/", max_bytes=2000))[1] == bytes(2000)
        assert server.connections == 2


async def test_an_unexpected_second_response_is_not_taken_for_the_next(blocking: bool) -> None:
    forged = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with served(forged, OK, blocking=blocking) as (server, calls):
        assert await calls.request("GET", "/") == (200, b"hi")
        assert await calls.request("GET", "/") == (200, b"hi")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET", "/é", {}),
        ("GET", "no-slash", {}),
        ("GET\r\n", "/", {}),
        ("GET", "/", {"X": "a\r\nEvil: 1"}),
        ("GET", "/", {"X": "a\nb"}),
        ("GET", "/", {"X": "a\0"}),
        ("GET", "/", {"X\r\nY": "a"}),
        ("GET", "/", {"": "a"}),
        ("GET", "/", {"X": "€"}),
    ],
)
async def test_header_injection_is_refused(method: str, target: str, headers: dict[str, str]) -> None:
    async with served(OK) as (server, calls):
        with pytest.raises(InvalidRequest):
            await calls.request(method, target, headers=headers)
        assert server.connections == 0


async def test_many_calls_share_a_bounded_number_of_connections() -> None:
    async with served(repeat=OK, max_connections=8) as (server, calls):
        done: list[int] = []

        async def call(n: int) -> None:
            assert await calls.request("GET", f"/{n}") == (200, b"hi")
            done.append(n)

        await asyncio.gather(*(call(n) for n in range(1000)))
        assert server.most_open <= 8 and server.connections == 8
        # Served in the order of arrival, give or take the calls in flight.
        assert all(abs(place - n) < 64 for place, n in enumerate(done))


async def test_long_requests_leave_connections_for_others() -> None:
    async with served(max_connections=1) as (server, calls):
        waiting = asyncio.create_task(calls.request("GET", "/long", long=True))
        await server.asked.wait()
        server.repeat = OK
        assert await calls.request("GET", "/short") == (200, b"hi")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_threads_share_a_blocking_client() -> None:
    async with served(repeat=OK, blocking=True, max_connections=3) as (server, calls):
        found: list[tuple[int, bytes]] = []

        def many() -> None:
            for _ in range(50):
                response = finish(calls.client.request("GET", "/"))
                found.append((response.status, response.body))

        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert found == [(200, b"hi")] * 400
        assert server.most_open <= 3


async def test_a_connection_that_was_idle_too_long_is_not_reused(blocking: bool) -> None:
    async with served(OK, OK, blocking=blocking, keep_alive_s=0) as (server, calls):
        await calls.request("GET", "/")
        await calls.request("GET", "/")
        assert server.connections == 2


def test_a_client_works_in_one_event_loop_after_another() -> None:
    with serving_in_a_thread() as url, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the first loop ends with an open connection
        client = HttpClient(url, {})

        async def get() -> bytes:
            return (await client.request("GET", "/")).body

        assert asyncio.run(get()) == b"hi"
        assert asyncio.run(get()) == b"hi"
        client.close()
        gc.collect()


async def test_nothing_listens(blocking: bool) -> None:
    async with served(blocking=blocking) as (_, calls):
        pass
    with pytest.raises(ConnectFailed, match="cannot connect to"):
        await calls.request("GET", "/")


async def test_errors_of_the_worker_protocol() -> None:
    refusal = b'{"code": "forbidden", "detail": "no"}'
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(refusal)
    async with served(CLOSE, head + refusal) as (server, _):
        api = ApiClient(ApiAddress(server.url, "t"))
        with pytest.raises(ApiUnavailable):
            await api._post("/", {}, dict)  # type: ignore[arg-type]
        with pytest.raises(Refused, match="no"):
            await api._post("/", {}, dict)  # type: ignore[arg-type]
        await api.close()
    gone = ApiClient(ApiAddress(server.url, "t"))
    with pytest.raises(ApiUnavailable):
        await gone._post("/", {}, dict)  # type: ignore[arg-type]
    await gone.close()


@pytest.mark.parametrize("url", ["", "api:7171", "ftp://api", "http://", "http://a b/", "http://a:b/"])
def test_an_invalid_url(url: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        HttpClient(url, {})

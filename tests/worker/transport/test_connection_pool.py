"""Keep-alive connections, with a server that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mainspring.worker.transport import connection_pool as module
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, ApiUnavailable, Refused
from mainspring.worker.transport.connection_pool import NO_ANSWER, ConnectionPool, is_direct

pytestmark = pytest.mark.anyio
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Counts connections, records requests, and sends prepared answers."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.answers: list[bytes] = []
        self.closing = False  # after each answer
        self.asked = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                self.asked.set()
                if not self.answers:
                    continue
                writer.write(self.answers.pop(0))
                if self.closing:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def served(
    *answers: bytes, prefix: str = "", closing: bool = False
) -> AsyncIterator[tuple[Server, ConnectionPool]]:
    server = Server()
    server.closing = closing
    server.answers = list(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{prefix}"
    poster = ConnectionPool(server.url, {"Authorization": "Bearer x"})
    try:
        yield server, poster
    finally:
        poster.close()
        listening.close()
        await listening.wait_closed()


async def test_a_connection_is_used_again() -> None:
    async with served(OK, OK, OK) as (server, poster):
        assert [await poster.post("/a", b"1"), await poster.post("/b", b""), await poster.post("/c", b"333")] == [
            (200, b"hi")
        ] * 3
        assert server.connections == 1
        first, second, third = server.requests
        assert first.startswith(b"POST /a HTTP/1.1\r\n") and first.endswith(b"\r\n\r\n1")
        assert b"\r\nAuthorization: Bearer x\r\n" in first and b"\r\nHost: 127.0.0.1:" in first
        assert second.endswith(b"\r\n\r\n") and third.endswith(b"\r\n\r\n333")


async def test_a_path_before_ours_and_an_answer_in_pieces() -> None:
    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    async with served(chunked, prefix="/mainspring/") as (server, poster):
        assert await poster.post("/api/v1/x", b"{}") == (201, b"abcdefg")
        assert server.requests[0].startswith(b"POST /mainspring/api/v1/x HTTP/1.1\r\n")


async def test_two_at_once_have_two_connections() -> None:
    async with served(OK, OK, OK) as (server, poster):
        await asyncio.gather(poster.post("/", b""), poster.post("/", b""))
        await poster.post("/", b"")
        assert server.connections == 2


@pytest.mark.parametrize("answer", [b"", CUT_OFF, b"hello, stranger\r\n\r\n"], ids=["closed", "cut off", "no HTTP"])
async def test_what_is_no_answer_raises_and_the_next_one_works(answer: bytes) -> None:
    async with served(answer, OK, closing=True) as (server, poster):
        with pytest.raises(NO_ANSWER):
            await poster.post("/", b"")
        server.closing = False
        assert await poster.post("/", b"") == (200, b"hi")
        assert server.connections == 2


async def test_a_server_that_wants_the_connection_closed() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    async with served(closing, OK) as (server, poster):
        await poster.post("/", b"")
        await poster.post("/", b"")
        assert server.connections == 2


async def test_one_that_was_given_up_is_not_used_again() -> None:
    async with served() as (server, poster):
        asking = asyncio.create_task(poster.post("/slow", b""))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.answers = [OK]
        assert await poster.post("/", b"") == (200, b"hi")
        assert server.connections == 2


async def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    async with served() as (_, poster):
        with pytest.raises(TimeoutError):
            await poster.post("/", b"")


async def test_the_link_says_what_it_means() -> None:
    refusal = b'{"code": "forbidden", "detail": "no"}'
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(refusal)
    async with served(b"", head + refusal, closing=True) as (server, _):
        link = ApiClient(ApiAddress(server.url, "t"))
        with pytest.raises(ApiUnavailable):
            await link._post("/", {}, dict)  # type: ignore[arg-type]
        with pytest.raises(Refused, match="no"):
            await link._post("/", {}, dict)  # type: ignore[arg-type]
        await link.close()
    gone = ApiClient(ApiAddress(server.url, "t"))
    with pytest.raises(ApiUnavailable):
        await gone._post("/", {}, dict)  # type: ignore[arg-type]
    await gone.close()


def test_proxies_of_the_environment_are_for_the_general_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert is_direct("http://api.example:7171") and is_direct("https://api.example")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert not is_direct("http://api.example:7171") and is_direct("https://api.example")
    monkeypatch.setenv("no_proxy", "api.example")
    assert is_direct("http://api.example:7171")


@pytest.mark.parametrize("url", ["", "api:7171", "ftp://api", "http://"])
def test_not_an_address(url: str) -> None:
    with pytest.raises(ValueError, match="invalid api URL"):
        ConnectionPool(url, {})

"""Bodies in chunks, in both directions, and processes that fork."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from mainspring.http_client import BlockingNetwork, ConnectionLost, HttpClient, TimedOut, finish
from mainspring.http_client.asyncio_network import BUFFER_BYTES
from tests.support.http_receiver import Received, receiving, reply

pytestmark = pytest.mark.anyio
CHUNK = bytes(64 * 1024)


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Script:
    """A server on plain sockets: `handle` gets reader and writer of each connection."""

    def __init__(self) -> None:
        self.url = ""
        self.read = 0
        self.written = 0
        self.go_on = asyncio.Event()
        self.done = asyncio.Event()

    async def slow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await self.go_on.wait()
        writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
        await reader.read()
        writer.close()

    async def large(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        total = 400
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (total * len(CHUNK)))
        for _ in range(total):
            writer.write(CHUNK)
            await writer.drain()
            self.written += len(CHUNK)
        self.done.set()
        await reader.read()
        writer.close()

    async def refusing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Refuse an upload after its head and close."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await self.go_on.wait()
        writer.close()


def open_client(port: int, blocking: bool) -> HttpClient:
    return HttpClient(f"http://127.0.0.1:{port}", {}, network=BlockingNetwork() if blocking else None)


async def test_chunks_arrive_before_the_end() -> None:
    script = Script()
    server = await asyncio.start_server(script.slow, "127.0.0.1", 0)
    client = open_client(server.sockets[0].getsockname()[1], False)
    async with client.stream("GET", "/") as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"first"
        script.go_on.set()
        assert [chunk async for chunk in chunks] == [b"second"]
    client.close()
    server.close()


async def test_silence_in_the_middle_of_a_stream() -> None:
    script = Script()
    server = await asyncio.start_server(script.slow, "127.0.0.1", 0)
    client = open_client(server.sockets[0].getsockname()[1], False)

    async def read() -> None:
        async with client.stream("GET", "/", timeout_s=0.05) as response:
            await response.read()

    with pytest.raises(TimedOut):
        await read()
    script.go_on.set()
    client.close()
    server.close()


async def test_a_stream_that_is_not_read_stops_the_server() -> None:
    """Memory stays bounded: the server can't send what nobody reads."""
    script = Script()
    server = await asyncio.start_server(script.large, "127.0.0.1", 0)
    client = open_client(server.sockets[0].getsockname()[1], False)
    async with client.stream("GET", "/") as response:
        assert response.status == 200
        parser = response._connection.parser
        while not response._connection._reading_paused:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        assert sum(map(len, parser.chunks)) < 4 * BUFFER_BYTES
        assert not script.done.is_set()
        size = 0
        async for chunk in response.chunks():
            size += len(chunk)
        assert size == 400 * len(CHUNK)
    client.close()
    server.close()


async def test_a_broken_stream(blocking: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n3\r\nx"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    client = open_client(server.sockets[0].getsockname()[1], blocking)

    async def read() -> bytes:
        async with client.stream("GET", "/") as response:
            return await response.read()

    with pytest.raises(ConnectionLost):
        await (asyncio.to_thread(finish, read()) if blocking else read())
    server.close()


async def body(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield CHUNK


async def upload(client: HttpClient, count: int) -> tuple[int, bytes]:
    async with client.stream("POST", "/", body(count), size=count * len(CHUNK)) as response:
        return response.status, await response.read()


async def test_an_upload_in_chunks(blocking: bool) -> None:
    def answer(received: Received) -> bytes:
        return reply(body=str(len(received.body)).encode())

    async with receiving(answer) as server:
        client = open_client(server.port, blocking)
        for count in (0, 1, 100):
            call = upload(client, count)
            found = await (asyncio.to_thread(finish, call) if blocking else call)
            assert found == (200, str(count * len(CHUNK)).encode())
        client.close()


async def test_an_upload_that_is_refused_before_its_end() -> None:
    script = Script()
    server = await asyncio.start_server(script.refusing, "127.0.0.1", 0)
    client = open_client(server.sockets[0].getsockname()[1], False)
    assert await upload(client, 10_000) == (413, b"no")
    assert not client._idle
    script.go_on.set()
    server.close()


async def test_a_forked_process_opens_its_own_connections() -> None:
    async with receiving(lambda _: reply(body=b"ok")) as server:
        client = open_client(server.port, True)
        await asyncio.to_thread(finish, client.request("GET", "/parent"))

        def in_child() -> int:
            pid = os.fork()
            if pid == 0:
                try:
                    ok = finish(client.request("GET", "/child")).body == b"ok"
                    os._exit(0 if ok else 1)
                except BaseException:
                    os._exit(2)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert await asyncio.to_thread(in_child) == 0
        await asyncio.to_thread(finish, client.request("GET", "/parent-again"))
        assert [got.line.split()[1] for got in server.got] == ["/parent", "/child", "/parent-again"]
        assert server.connections == 2
        client.close()

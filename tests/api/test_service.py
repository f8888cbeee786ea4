"""The HTTP server with many connections and few file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from mainspring.api.connection import ConnectionLimits
from mainspring.api.service import HttpServer
from mainspring.process import raise_file_limit

pytestmark = pytest.mark.anyio


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


@contextlib.asynccontextmanager
async def served(files: int) -> AsyncIterator[int]:
    server = HttpServer(hello, host="127.0.0.1", port=0, files=files, limits=ConnectionLimits())
    await server.start()
    await server.ready()
    try:
        yield server.port
    finally:
        await server.stop()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length:")[2].split("\r\n", 1)[0])
    await reader.readexactly(length)
    return head


@contextlib.asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    found = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield found
    finally:
        for _, writer in found:
            writer.close()


async def test_connections_are_kept_while_there_is_room_for_others() -> None:
    async with served(files=20) as port, connected(port, 17) as lines:
        for _ in range(2):
            for line in lines:
                assert "connection: close" not in await ask(*line)


async def test_beyond_that_each_is_closed_with_its_answer_and_none_is_refused() -> None:
    async with served(files=20) as port, connected(port, 17) as lines:
        for line in lines:
            await ask(*line)
        for _ in range(10):
            async with connected(port, 1) as (late,):
                head = await ask(*late)
                assert head.startswith("HTTP/1.1 200") and "connection: close" in head
                assert await late[0].read() == b"", "the file is free again"


async def test_the_last_files_are_for_the_database() -> None:
    """Whoever is turned away is told to come again, in place of a connection that nobody accepts."""
    async with served(files=20) as port, connected(port, 18), connected(port, 1) as (late,):
        assert (await ask(*late)).startswith("HTTP/1.1 503")


def test_a_server_takes_all_the_files_the_system_allows() -> None:
    text = (
        "import resource; from mainspring.process import raise_file_limit;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512));"
        "print(raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["512", "512", "512"]
    assert raise_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]

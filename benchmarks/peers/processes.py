"""Runs peers: their workers, their clients, a Redis; and measures both rows that every peer has, latency and drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from harness import Machine, processor_s
from peers import install
from peers.catalog import Definition

WAIT_S = 300.0


def times_of(file: Path) -> list[tuple[float, float]]:
    """Return what functions appended: the moment of submission and of the function's first line."""
    if not file.exists():
        return []
    lines = file.read_text().split("\n")[:-1]
    return [(float(sent), float(at)) for sent, at in (line.split() for line in lines)]


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


async def until_times(file: Path, count: int, *, sent: float | None = None) -> list[tuple[float, float]]:
    """Wait until that many jobs that count have begun: their moment is positive, or the given one."""
    end = time.monotonic() + WAIT_S
    found: list[tuple[float, float]] = []
    while time.monotonic() < end:
        if _lines(file) >= count:  # cheap: a queue is being drained meanwhile
            found = [pair for pair in times_of(file) if (pair[0] > 0 if sent is None else pair[0] == sent)]
            if len(found) >= count:
                return found
        await asyncio.sleep(0.01 if sent is not None else 0.05)
    raise TimeoutError(f"{len(found)} of {count} functions began within {WAIT_S:.0f} s")


def last_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().rpartition("\n")[2] or "no message"


def stop(process: subprocess.Popen[Any]) -> None:
    """End one process that this program started, politely and then not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def started(command: list[str], env: dict[str, str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a session of its own, so that Ctrl-C reaches only this program, which then ends the process."""
    process = subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True, **options)
    try:
        yield process
    finally:
        stop(process)


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A Redis server with its default settings (snapshots, no append-only file) on a free port; yields its URL."""
    command, env = install.program("redis")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        with started([*command, *options], env, stdout=subprocess.DEVNULL) as process:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            else:
                raise install.NotInstalled("redis-server did not start")
            SERVERS.append(process.pid)
            try:
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                SERVERS.remove(process.pid)


SERVERS: list[int] = []  # of Redis, whose CPU counts for its peers


@dataclass
class Client:
    """A process that submits, with the verbs of verbs.py."""

    command: list[str]
    env: dict[str, str]

    def recording(self, file: Path) -> Client:
        """The same client for jobs whose functions append to this file."""
        return Client(self.command, {**self.env, "BENCH_FILE": str(file)})

    async def begin(self, *words: object) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command,
            *[str(word) for word in words],
            env={**os.environ, **self.env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def ask(self, *words: object) -> dict[str, Any]:
        """Run a verb and return the last line that it prints."""
        process = await self.begin(*words)
        try:
            async with asyncio.timeout(WAIT_S):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"`{' '.join(map(str, words))}` failed: {last_line(errors)}")
        last = output.decode().strip().rpartition("\n")[2]
        return dict(json.loads(last)) if last.startswith("{") else {}

    async def paced(self, n: int, warm_up: int, rate: int, used: Any) -> tuple[dict[str, float], float]:
        """Submit at a rate; return by role the CPU seconds from the end of the warm-up until the last answer."""
        process = await self.begin("latency", n, warm_up, rate)
        assert process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(WAIT_S):
                line = await process.stdout.readline()
                if line != b"begin\n":
                    raise RuntimeError(f"`latency` failed: {last_line(await process.stderr.read())}")
                before = used()
                answer = json.loads(await process.stdout.readline())
                after = used()
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        return {role: after[role] - before.get(role, 0.0) for role in after}, answer["cpu_s"]


@dataclass
class Peer:
    """An installed peer with its database."""

    definition: Definition
    client: Client
    dsn: str
    workers: list[subprocess.Popen[Any]] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def working(self, mode: str, file: Path) -> AsyncIterator[None]:
        count = self.definition.drain_processes if mode == "drain" else 1
        env = self.client.recording(file).env
        with contextlib.ExitStack() as stack:
            command = [*self.client.command, "work", mode]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.workers = [stack.enter_context(started(command, env, **quiet)) for _ in range(count)]
            yield
        self.workers = []

    @contextlib.asynccontextmanager
    async def used_once(self) -> AsyncIterator[Client]:
        """The client for one measurement, after which no job is left."""
        try:
            yield self.client
        finally:
            await self._clear()

    async def _clear(self) -> None:
        if self.definition.on_redis:
            await _redis_flush(self.dsn)
        else:
            async with connection(self.dsn) as database:
                await database.execute(self.definition.clear)

    def used(self, target: Machine) -> dict[str, float]:
        workers = sum(processor_s(worker.pid)[1] for worker in self.workers)
        server = sum(processor_s(pid)[1] for pid in SERVERS) if self.definition.on_redis else 0.0
        return {"worker": workers, "redis": server, "postgresql": target.cpu_s()["postgresql"]}


@contextlib.asynccontextmanager
async def connection(dsn: str) -> AsyncIterator[Any]:
    database = await asyncpg.connect(dsn)
    try:
        yield database
    finally:
        await database.close()


async def until_empty(dsn: str, left: str) -> float:
    """Return the moment at which no job is left, seen to 20 ms."""
    async with connection(dsn) as database:
        end = time.monotonic() + WAIT_S
        while await database.fetchval(left):
            if time.monotonic() > end:
                raise TimeoutError(f"the queue was not empty within {WAIT_S:.0f} s")
            await asyncio.sleep(0.02)
        return time.time()


async def prepare(definition: Definition, target: Machine, redis_url: str) -> Peer:
    """Install a peer, create its database and its tables."""
    folder = install.FOLDER
    env: dict[str, str] = {}
    if definition.language == "go":
        command = await asyncio.to_thread(install.go_peer, definition.name)
    elif definition.language == "node":
        program, env = await asyncio.to_thread(install.node_peer, definition.name)
        command = [*program, str(folder / f"{definition.name}_peer.cjs")]
    else:
        program = await asyncio.to_thread(install.python_peer, definition.name)
        command = [*program, str(folder / f"{definition.name}_peer.py")]
    dsn = redis_url if definition.on_redis else await create_database(target, definition.name)
    client = Client(command, {**env, "BENCH_DSN": dsn, "PYTHONDONTWRITEBYTECODE": "1"})
    await client.ask("prepare")
    return Peer(definition, client, dsn)


async def create_database(target: Machine, name: str) -> str:
    async with connection(target.postgres.dsn_for("postgres")) as database:
        await database.execute(f'CREATE DATABASE "{name}"')
    return target.postgres.dsn_for(name)


async def _redis_flush(url: str) -> None:
    host, _, port = url.removeprefix("redis://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"FLUSHALL\r\n")
    assert (await reader.readline()).startswith(b"+OK")
    writer.close()
    await writer.wait_closed()

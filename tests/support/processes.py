"""Mainspring in real processes: start, inspect and kill them from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.client import AsyncClient

DEV = ("-m", "mainspring.cli.main", "dev")
LAST_LINES = ("Executions:", "Nothing scheduled yet")
"""With one of these the start-up screen of `mainspring dev` ends; it is printed line by line."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def until(what: str, condition: Callable[[], bool], *, within_s: float) -> None:
    """Wait until the condition holds; fail after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        await asyncio.sleep(0.02)


async def until_async(what: str, condition: Callable[[], Awaitable[bool]], *, within_s: float) -> None:
    """Like `until`, for an asynchronous condition."""
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        await asyncio.sleep(0.02)


class Dev:
    """A running `mainspring dev`, or another program that prints the address of its UI."""

    def __init__(self, folder: Path, port: int, *options: str, command: Sequence[str] = DEV) -> None:
        self.folder = folder
        self.port = port
        self.screen = folder / "screen.txt"
        self._ends = LAST_LINES if command is DEV else ("UI http",)
        with self.screen.open("wb") as screen:
            self.process = subprocess.Popen(
                [sys.executable, *command, "--port", str(port), *options],
                cwd=folder,
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")},
            )

    async def up(self) -> None:
        def is_complete() -> bool:
            return any(line in self.text() for line in self._ends) or self.dead()

        await until("the start-up screen", is_complete, within_s=180)
        assert not self.dead(), self.text()

    def dead(self) -> bool:
        return self.process.poll() is not None

    def text(self) -> str:
        return self.screen.read_text()

    @property
    def token(self) -> str:
        return (self.folder / ".mainspring" / "token").read_text().strip()

    @property
    def database_url(self) -> str:
        """The database URL in the environment of the server process."""
        environ = Path(f"/proc/{self.child('mainspring.cli.main serve')}/environ").read_bytes().split(b"\0")
        found = next(entry for entry in environ if entry.startswith(b"MAINSPRING_DATABASE_URL="))
        return found.partition(b"=")[2].decode()

    def client(self) -> AsyncClient:
        return AsyncClient(f"http://127.0.0.1:{self.port}", self.token)

    def child(self, word: str) -> int | None:
        """The process id of the child whose command line contains this text."""
        for pid in children(self.process.pid):
            if word in command_line(pid):
                return pid
        return None

    async def kill(self, word: str) -> None:
        pid = self.child(word)
        assert pid is not None, f"no {word} among the children"
        os.kill(pid, signal.SIGKILL)
        await until(f"a new {word}", lambda: self.child(word) not in (None, pid), within_s=30)

    async def stop(self, number: int = signal.SIGINT) -> int:
        if not self.dead():
            self.process.send_signal(number)
        await until("the end of mainspring dev", self.dead, within_s=60)
        return self.process.returncode


@asynccontextmanager
async def dev(folder: Path, *options: str, command: Sequence[str] = DEV) -> AsyncIterator[Dev]:
    running = Dev(folder, free_port(), *options, command=command)
    try:
        await running.up()
        yield running
    finally:
        await running.stop()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return bool(command_line(pid))

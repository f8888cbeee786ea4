"""Runs `mainspring worker` as a process with its guardian, as in production."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.processes import alive, children, command_line, until

ENDLESS = "while :; do sleep 0.05; done"


class Program:
    """A running `mainspring worker`."""

    def __init__(self, folder: Path, url: str, token: str, *options: str, path: str | None = None) -> None:
        self.screen = folder / f"worker-{len(list(folder.iterdir()))}.txt"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        if path is not None:
            environment["PYTHONPATH"] = path
        with self.screen.open("wb") as screen:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring.cli.main", "worker", *options],
                cwd=folder,
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment | {"MAINSPRING_URL": url, "MAINSPRING_TOKEN": token},
            )

    async def up(self) -> None:
        await self.says("session.started")

    async def says(self, words: str) -> None:
        await until(f"{words!r} from the worker", lambda: words in self.text() or self.dead(), within_s=30)
        assert words in self.text(), self.text()

    def text(self) -> str:
        return self.screen.read_text()

    def dead(self) -> bool:
        return self.process.poll() is not None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        await until("the end of the worker", self.dead, within_s=30)
        return self.process.returncode

    @property
    def guardian(self) -> int:
        return next(pid for pid in children(self.process.pid) if "guardian" in command_line(pid))


@asynccontextmanager
async def worker(folder: Path, url: str, token: str, *options: str, path: str | None = None) -> AsyncIterator[Program]:
    program = Program(folder, url, token, *options, path=path)
    try:
        await program.up()
        yield program
    finally:
        if not program.dead():
            program.send(signal.SIGKILL)
        await program.ended()


def written(file: Path, lines: int = 1) -> bool:
    return file.exists() and len(file.read_text().splitlines()) >= lines


def living(file: Path) -> list[int]:
    """Return the processes named in a file that still run."""
    return [pid for pid in map(int, file.read_text().split()) if alive(pid)]

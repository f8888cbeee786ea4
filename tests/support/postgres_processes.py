"""Processes for tests of the embedded PostgreSQL: start, kill, wait, inspect sockets."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mainspring
from mainspring.embedded.server import EmbeddedServer

Serve = Callable[..., EmbeddedServer]
SOURCE = Path(mainspring.__file__).parents[1]


class Supervisor:
    """`postgres_supervisor.py` in its own process; `hear` returns its next report."""

    def __init__(self, directory: Path, *, python: str = sys.executable, path: str = "", **options: Any) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{path}"} | options.pop("env", {})
        script = Path(__file__).with_name("postgres_supervisor.py")
        self.process = subprocess.Popen(
            [python, script, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            **options,
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def let_end(self) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.close()
        said = self.hear()
        self.process.wait(30)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def supervisor(directory: Path, **options: Any) -> Iterator[Supervisor]:
    one = Supervisor(directory, **options)
    try:
        yield one
    finally:
        one.kill()
        for stream in (one.process.stdin, one.process.stdout):
            assert stream
            stream.close()


@contextmanager
def another_program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as program:
        try:
            yield program
        finally:
            program.kill()


def wait_gone(pid: int, timeout_s: float = 20) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], timeout_s)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


def status(pid: int, field: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


def listens_on_tcp(pid: int) -> bool:
    """Whether any descriptor of the process is a listening TCP socket."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        inodes |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return any(os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir())

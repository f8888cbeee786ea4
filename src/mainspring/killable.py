"""Runs work that is not provably cheap in another process, with a limit on its CPU time and memory.

A child process imports the function once and forks for each call. The fork has a CPU timer, which ends it wherever it
is: also inside a library that never returns to Python. The caller's event loop only waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.domain.errors import Unavailable

MAX_WAITING = 32
"""Calls that wait for the process; further ones are refused."""
MAX_FRAME_BYTES = 64_000_000
START_S = 30.0
"""How long the process may take to import its function, on a machine that is busy with other work."""
READY = b"ready"
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")
_LENGTH = struct.Struct("!I")


class Killed(Exception):
    """The call used more CPU time or memory than it may."""


class Failed(Exception):
    """The function raised an exception; the message is its text."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one call. `wall_s` is by the clock: longer than `cpu_s`, because the machine has other work."""

    cpu_s: float
    wall_s: float
    memory_bytes: int = 1_000_000_000


class KillableFunction:
    """A function of JSON values, called in a process that can be killed. One call at a time.

    The process starts with the first call, and ends when this one closes its pipe or ends.
    """

    def __init__(self, function: str, limits: Limits) -> None:
        self._function = function
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._waiting = 0

    async def call(self, *args: Any, wall_s: float | None = None) -> Any:
        """Call the function; raise Killed if it exceeds its limits, Failed if it raises."""
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many requests wait for the same work; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.to_thread(self._call, msgspec.json.encode(args), wall_s or self._limits.wall_s)
        finally:
            self._waiting -= 1

    def start(self) -> None:
        """Start the process, so that the first call need not wait for it."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            self._end()

    def _call(self, request: bytes, wall_s: float) -> Any:
        with self._lock:
            try:
                answer = self._exchange(self._running(), request, wall_s)
            except (OSError, EOFError):  # the process was ended from outside: once more with a new one
                self._end()
                answer = self._exchange(self._running(), request, wall_s)
            if answer is None:
                self._end()
                raise Killed
        kind, content = answer[:1], answer[1:]
        if kind == b"k":
            raise Killed
        if kind == b"e":
            raise Failed(content.decode())
        return msgspec.json.decode(content)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            command = [sys.executable, "-m", "mainspring.killable_process", self._function]
            command += [str(self._limits.cpu_s), str(self._limits.memory_bytes)]
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
            )
            assert process.stdout is not None
            if not select.select([process.stdout], [], [], START_S)[0]:
                raise EOFError
            read_exactly(process.stdout.fileno(), len(READY))
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes, wall_s: float) -> bytes | None:
        """Send one request and read its answer; None if the answer takes too long."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_LENGTH.pack(len(request)) + request)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], wall_s)[0]:
            return None
        size = _LENGTH.unpack(read_exactly(process.stdout.fileno(), _LENGTH.size))[0]
        return read_exactly(process.stdout.fileno(), size)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # of a request that it has not read
                        pipe.close()


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read `size` bytes of a pipe; EOFError if it ends before."""
    if size > MAX_FRAME_BYTES:
        raise EOFError
    parts = []
    while size:
        if not (part := os.read(descriptor, min(size, 1 << 20))):
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

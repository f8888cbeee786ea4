"""The process behind a `KillableFunction`: `python -m mainspring.killable_process MODULE:FUNCTION CPU_S MEMORY`.

Reads requests from standard input and forks for each. A fork that its CPU timer or a lack of memory ends leaves no
answer, and the parent says so. It ends when standard input does.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from mainspring.killable import MAX_FRAME_BYTES, READY, read_exactly

_LENGTH = struct.Struct("!I")
MAX_ERROR_CHARS = 2000


def main() -> None:
    """Serve requests until standard input ends."""
    module, _, name = sys.argv[1].partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    cpu_s, memory = float(sys.argv[2]), int(sys.argv[3])
    requests, answers = os.dup(0), os.dup(1)
    for standard in (0, 1):  # what the function prints must not mix with answers
        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    gc.freeze()
    _write(answers, READY)
    while True:
        try:
            size = _LENGTH.unpack(read_exactly(requests, _LENGTH.size))[0]
            request = read_exactly(requests, size)
        except EOFError:
            return
        answer = _forked(function, request, cpu_s, memory)
        _write(answers, _LENGTH.pack(len(answer)) + answer)


def _forked(function: Callable[..., Any], request: bytes, cpu_s: float, memory: int) -> bytes:
    """Call the function in a fork; the answer starts with v (value), e (error) or k (killed)."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _limit(cpu_s, memory)
        _write(writing, _answer(function, request))
        os._exit(0)
    os.close(writing)
    parts = []
    while part := os.read(reading, 1 << 20):
        parts.append(part)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    answer = b"".join(parts)
    return answer if status == 0 and answer and len(answer) <= MAX_FRAME_BYTES else b"k"


def _limit(cpu_s: float, memory: int) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it does
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _answer(function: Callable[..., Any], request: bytes) -> bytes:
    try:
        return b"v" + msgspec.json.encode(function(*msgspec.json.decode(request)))
    except MemoryError:
        return b"k"
    except Exception as error:
        return b"e" + str(error)[:MAX_ERROR_CHARS].encode("utf-8", "replace")


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()

"""Process setup: event loop, garbage collector, signals, limits."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

GC_THRESHOLD = 5_000
"""Allocations between collections of the youngest generation."""
MOST_OPEN_FILES = 1_000_000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a program's main coroutine on uvloop."""
    # Modules are never garbage: each full collection among them took 40 ms, in which nothing could start.
    gc.collect()
    gc.freeze()
    # Full collections must be rare: with a fleet of polling workers there are a million objects, and one takes 0.5 s.
    # The youngest generation, where the garbage is, is still collected often.
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    uvloop.run(work)


def raise_file_limit() -> int:
    """Raise the limit of open files, and so of connections, to the hard limit; return the new limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def hide_environment() -> None:
    """Hide environment and memory from other processes of this user, such as a worker's tasks (PR_SET_DUMPABLE)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Receive SIGTERM when the parent dies, even by SIGKILL. Call it in the child."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)

"""This process among others: signals, its parent, its event loop."""

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

YOUNG = 5_000
"""New objects until the garbage collector looks among them."""
MOST_FILES = 1_000_000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a program's main coroutine on the fast event loop."""
    # The modules stay: looking for garbage among them took 40 ms each time, in which nothing started.
    gc.collect()
    gc.freeze()
    # Nor is everything else gone through each time a few hundred polls have ended: with a fleet of workers waiting that
    # is a million objects, half a second. What is young is still looked at often, and that is where garbage is.
    gc.set_threshold(YOUNG, 20, 100)
    uvloop.run(work)


def raise_file_limit() -> int:
    """Allows this process as many open files, so connections, as the system lets it have; says how many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)
    return stop


def hide_environment() -> None:
    """Has the kernel keep our environment and memory from other processes of this user: a worker's tasks run as it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Has the kernel send SIGTERM when the parent dies, kill -9 included; to be called by the child."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)

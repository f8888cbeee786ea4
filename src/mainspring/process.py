"""Process setup: event loop, garbage collector, signals, limits."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import hashlib
import os
import resource
import signal
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
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
    return open_file_limit()


def open_file_limit() -> int:
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


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends, or until `stop` is set, which cancels it; return whether it has ended."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


def hide_memory() -> None:
    """Hide memory, environment and open files from other processes of this user, such as jobs (PR_SET_DUMPABLE).

    Root reads them nevertheless. A program that this process starts is not hidden.
    """
    with contextlib.suppress(AttributeError):  # only Linux has it
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0)


def erase_secret(secret: str) -> None:
    """Overwrite a secret in /proc/self/environ, and in /proc/self/cmdline, which every user can read."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    wanted = secret.encode()
    for first, last in (fields[45:47], fields[47:49]):  # arg_start, arg_end; env_start, env_end
        start, size = int(first), int(last) - int(first)
        if not start or not wanted:
            continue
        memory = ctypes.string_at(start, size)
        at = memory.find(wanted)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(wanted))
            at = memory.find(wanted, at + len(wanted))


def die_with_parent(parent: int) -> None:
    """Receive SIGTERM when the parent dies, even by SIGKILL. Call it in the child."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


@cache
def machine_user() -> str:
    """Return `uid@machine`, equal in two processes if each can see the other and both have the same user."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        spaces = "/".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "user"))
    except OSError:
        boot, spaces = "", ""
    machine = hashlib.sha256(f"{boot}/{spaces}".encode()).hexdigest()[:16] if boot else ""
    return f"{os.geteuid()}@{machine}"

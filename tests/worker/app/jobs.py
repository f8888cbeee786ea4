"""Functions that workers call in tests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import mainspring as ms

pause = threading.Event().wait


def touch(file: str) -> None:
    Path(file).touch()


async def moment() -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)


@ms.job
def nothing() -> None: ...


@ms.job(schedule="0 2 * * *", tz="Europe/Berlin", retries=1, timeout="5m", queue="long")
def report(day: ms.FireDate, region: str = "eu") -> dict[str, Any]:
    """Return the report of a day."""
    print("rows for", region)
    print("careful", file=sys.stderr)
    found = ms.context()
    return {"day": day, "is_date": type(day) is date, "region": region, "attempt": found.attempt, "job": found.job}


@dataclass
class Order:
    id: UUID
    lines: list[str]


def typed(order: Order, day: date) -> list[Any]:
    return [type(order).__name__, str(order.id), order.lines, day.year]


class Greeting:
    """A class: constructed with the arguments, then called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> str:
        return f"hello {self._name}"


def boom() -> None:
    raise ValueError("no rows")


def leave() -> None:
    sys.exit("enough")


def not_json() -> object:
    return object()


def huge() -> str:
    return "x" * 300_000


def repeat(text: str, times: int) -> str:
    return text * times


def die(file: str = "") -> None:
    if file:
        Path(file).write_text(str(os.getpid()))
    os.kill(os.getpid(), 9)


def forks(file: str) -> None:
    """Return in two processes."""
    child = os.fork()
    with open(file, "a") as written:
        written.write("parent " if child else "child ")
    if child:
        os.waitpid(child, 0)


def whoami() -> int:
    return os.getpid()


def shared(file: str) -> int:
    """Return once `file` exists."""
    while not os.path.exists(file):
        pause(0.01)
    return os.getpid()


async def meet(file: str, name: str, of: int) -> int:
    """Return when `of` calls have begun, which requires that they run concurrently."""
    print(f"{name} waits")
    touch(os.path.join(file, name))
    while len(os.listdir(file)) < of:
        await moment()
    print(f"{name} goes")
    return os.getpid()


async def hang_softly(file: str) -> None:
    try:
        touch(file)
        await asyncio.Event().wait()
    finally:
        print("cleaned up")


async def hang_hard(file: str) -> None:
    touch(file)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def hang(file: str = "") -> None:
    child = subprocess.Popen(["sleep", "600"])
    if file:
        Path(file + ".new").write_text(f"{os.getpid()} {child.pid}")
        os.rename(file + ".new", file)
    try:
        while True:
            pause(0.05)
    finally:
        print("cleaned up")


def deaf(file: str) -> None:
    Path(file + ".new").write_text(str(os.getpid()))
    os.rename(file + ".new", file)
    while True:
        with contextlib.suppress(BaseException):
            signal.pause()


def noisy() -> None:
    print("printed")
    logging.getLogger("app").warning("logged")
    os.system("echo from a program")
    thread = threading.Thread(target=lambda: print("from a thread"))
    thread.start()
    thread.join()


def counting(file: str) -> int:
    done = 0
    for _ in ms.track(range(1000), message="counting"):
        done += 1
        if done == 410:
            ms.report_progress(410, 1000, "counting")
            while not os.path.exists(file):
                pause(0.01)
    return done


def maybe_hang(file: str, hang: bool) -> None:
    """Fast at first, then slow."""
    while hang and not os.path.exists(file):
        pause(0.01)


def journal(file: str, name: str, die: bool = False, wait_for: str = "") -> str:
    """Write when it begins and ends into a file."""
    journaled = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journaled, f"begins {name}\n".encode())
    while wait_for and not os.path.exists(wait_for):
        pause(0.01)
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    os.write(journaled, f"ends {name}\n".encode())
    os.close(journaled)
    return name


def _private() -> None: ...

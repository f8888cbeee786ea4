"""How far a job is: shown as a bar with rate and time left. Outside an execution it costs nothing and tells nobody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from mainspring.sdk.context import current

T = TypeVar("T")

FILE = "MAINSPRING_PROGRESS"
"""For programs that a shell task started: where they write how far they are."""
TELL_S = 0.2
"""`track` reports at most so often; nobody sees more."""


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Tells how far the execution is: `report_progress(410, 1000, "loading")`; without a total, `done` is a count.

    For a share use `report_progress(41, 100)`. Call it as often as you like: only the last word is kept.
    """
    if (executing := current.get()) is not None:
        executing.tell(done, total, message)
    elif path := os.environ.get(FILE):
        words = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        line = f"{words} {message}" if message else words
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(line.replace("\n", " ") + "\n")


def track(items: Iterable[T], total: float | None = None, message: str | None = None) -> Iterator[T]:
    """Passes the items on and reports how many were done; `total` is their number, if they know it themselves."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    done, told_at = 0, monotonic()
    report_progress(0, total, message)
    for item in items:
        yield item
        done += 1
        if monotonic() - told_at >= TELL_S:
            told_at = monotonic()
            report_progress(done, total, message)
    report_progress(done, total, message)

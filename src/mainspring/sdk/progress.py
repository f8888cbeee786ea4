"""Progress of an execution, shown as a bar with rate and time left. Does nothing outside an execution."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from mainspring.sdk.context import current

T = TypeVar("T")

PROGRESS_VARIABLE = "MAINSPRING_PROGRESS"
"""Programs of shell tasks write their progress into the file that this variable names."""
REPORT_S = 0.2
"""`track` reports at most this often."""


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report progress: `report_progress(410, 1000, "loading")`. Without a total, `done` is a count.

    For a percentage use `report_progress(41, 100)`. Call it as often as you like: only the last report is kept.
    """
    if (call := current.get()) is not None:
        call.report_progress(done, total, message)
    elif path := os.environ.get(PROGRESS_VARIABLE):
        numbers = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        line = f"{numbers} {message}" if message else numbers
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(line.replace("\n", " ") + "\n")


def track(items: Iterable[T], total: float | None = None, message: str | None = None) -> Iterator[T]:
    """Yield the items and report how many are done; `total` defaults to their number, if it is known."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    done, reported_at = 0, monotonic()
    report_progress(0, total, message)
    for item in items:
        yield item
        done += 1
        if monotonic() - reported_at >= REPORT_S:
            reported_at = monotonic()
            report_progress(done, total, message)
    report_progress(done, total, message)
